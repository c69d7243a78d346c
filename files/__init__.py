"""Files and the machine: what every subpackage needs to read, to write without loss, and to use all cores."""
