"""The report by class as files: JSON, text and a picture."""

import logging
from pathlib import Path

from ...files import write_json, write_lines
from ...metrics import ClassReport
from ...visualization import confusion_picture

logger = logging.getLogger(__name__)

REPORT_FILES = ("class_report*.json", "class_report*.txt", "confusion_matrix*.png")


def write_class_report(report: ClassReport, folder: Path, suffix: str = "") -> None:
    """Write `class_report.json`, `.txt`, and `confusion_matrix.png` if each text or word has one class."""
    write_json(folder / f"class_report{suffix}.json", report.as_json())
    write_lines(folder / f"class_report{suffix}.txt", report.lines())
    if report.confusion:
        picture = folder / f"confusion_matrix{suffix}.png"
        try:
            confusion_picture(report.confusion, report.confused_classes, picture, report.confused)
        except ImportError as error:
            logger.warning(str(error))
