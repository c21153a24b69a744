"""Many files in one answer: files a second here and on a cluster of this machine, and the memory of who asks.

python -m tests.bench.fleet [--files 8 64 512] [--steps 20] [--on here local:2 …]; `here` asks one file after
the other in one process. Dask and Ray are started for it where they are installed and are named.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tracetui.fleet.made import fleet

ASK = """
import resource, sys, time
from tracetui.fleet.ask_files import ask_files, make_jobs
from tracetui.fleet.file_job import run_job
from tracetui.look import Look
from tracetui.views import load_view
if __name__ == "__main__":
    name, folder, on = sys.argv[1:]
    jobs = make_jobs(load_view(name), [folder], Look(), cache=False, capture=None)
    moments = []
    if on == "here":
        for job in jobs:
            run_job(job)
            moments.append(time.monotonic())
    else:
        ask_files(load_view(name), jobs, on, lambda done: moments.append(time.monotonic()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    rest = moments[len(moments) // 4:]
    rate = (len(rest) - 1) / max(rest[-1] - rest[0], 1e-9)
    print(f"{len(jobs):6} files  {name:8} {on[:30]:30} {rate:8.1f} files/s once it runs  {peak:5} MB peak")
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--view", nargs="+", default=["kernels", "ranks"])
    parser.add_argument("--on", nargs="+", default=["here", "local:1", "local:2"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "ask.py"
        script.write_text(ASK)
        for number in args.files:
            folder = fleet(Path(place) / f"of{number}", number, args.steps)
            size = sum(p.stat().st_size for p in folder.iterdir()) / number
            print(f"{number} files of {size / 1e6:.2f} MB")
            for name in args.view:
                for on in args.on:
                    with cluster(on) as where:
                        subprocess.run([sys.executable, script, name, folder, where], check=False)


@contextmanager
def cluster(on: str) -> Iterator[str]:
    """Start what `dask` or `ray` stands for, with two workers, and give its address."""
    if on == "dask":
        import distributed

        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as started:
            yield started.scheduler_address.replace("tcp", "dask")
    elif on == "ray":
        import ray

        ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
        try:
            yield "ray://auto"
        finally:
            ray.shutdown()
    else:
        yield on


if __name__ == "__main__":
    main()
