"""What a recorded process reports, added up over all that it wrote."""

from tracetui.process.process_reports import ProcessReport


def test_report_of_a_process_that_went_on_as_another_program_adds_up() -> None:
    report = ProcessReport()
    for line in ("python 3.12.1", "torch 2.9 forked", "watched", "seen 3 40 1", "fault of our own",
                 "seen 2 10 1", "gaps 7 events", "seen 1 x", "unheard of"):  # fmt: skip
        report.add_line(line)
    assert (report.python, report.torch, report.gaps) == ("3.12.1", "2.9 forked", "7 events")
    assert report.is_recorded and report.has_ended and not report.has_llama_cpp
    assert report.counts == (5, 50, 2) and report.faults == ["of our own"]
