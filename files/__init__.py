"""Files and the machine: what every room needs to read, to write without loss, and to use all cores."""

from .addresses import refuse_address
from .companions import COMPANIONS, companion_files, copy_companions, refuse_link_outside
from .disk_errors import disk_trouble_in_words
from .durations import duration
from .hidden_names import PARTIAL
from .locking import BusyError, locked
from .logs import leave_standard_output, no_warnings, only_errors
from .machine import Environment, describe_environment, usable_cores
from .mistakes import sentence_for
from .model_files import (
    FIELDS_OF_A_HEAD,
    TASK_RECORD,
    WEIGHTS_FILE,
    check_model_folder,
    deciding_files,
    has_weights,
    read_json_object,
    refuse_quantized_weights,
    tensor_shapes,
    weight_files,
    without_foreign_code,
)
from .overwriting import (
    MODEL_FOLDER,
    check_can_be_folder,
    check_not_read,
    check_output_files,
    check_output_folder,
    clear_folder,
    remove,
    stays_in_place,
)
from .signals import INTERRUPTED, interruptible
from .tables import (
    is_table,
    json_line,
    parse_json,
    read_conll,
    read_rows,
    separated_line,
    stream_rows,
    write_separated,
)
from .text import content_suffix, expand_paths, open_text, read_blocks
from .workers import own_process, worker_processes
from .writing import (
    files_written_beside,
    folder_written_beside,
    write_json,
    write_lines,
    write_text,
    written_beside,
)

__all__ = [
    "COMPANIONS",
    "FIELDS_OF_A_HEAD",
    "INTERRUPTED",
    "MODEL_FOLDER",
    "PARTIAL",
    "TASK_RECORD",
    "WEIGHTS_FILE",
    "BusyError",
    "Environment",
    "check_can_be_folder",
    "check_model_folder",
    "check_not_read",
    "check_output_files",
    "check_output_folder",
    "clear_folder",
    "companion_files",
    "content_suffix",
    "copy_companions",
    "deciding_files",
    "describe_environment",
    "disk_trouble_in_words",
    "duration",
    "expand_paths",
    "files_written_beside",
    "folder_written_beside",
    "has_weights",
    "interruptible",
    "is_table",
    "json_line",
    "leave_standard_output",
    "locked",
    "no_warnings",
    "only_errors",
    "open_text",
    "own_process",
    "parse_json",
    "read_blocks",
    "read_conll",
    "read_json_object",
    "read_rows",
    "refuse_address",
    "refuse_link_outside",
    "refuse_quantized_weights",
    "remove",
    "sentence_for",
    "separated_line",
    "stays_in_place",
    "stream_rows",
    "tensor_shapes",
    "usable_cores",
    "weight_files",
    "without_foreign_code",
    "worker_processes",
    "write_json",
    "write_lines",
    "write_separated",
    "write_text",
    "written_beside",
]
