"""What a user says of the commands on task data: frozen settings, whose modules load no library."""
