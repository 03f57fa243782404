"""What a mail store does when it cannot write: `how folder`, a report on stdout.

`disk` fills a small file system that is mounted for this process only (run it under `unshare -m`),
`limit` makes the kernel refuse to let any file grow.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from structlog.testing import capture_logs

from busd.bus.mail import StoreFailed
from busd.bus.mail_store import Claim, Expire, Keep, Read
from tests.journal.rows import select
from tests.journal.short_of_disk import NoRoom, file_size_limit, full_disk
from tests.mail.stores import do, mail
from tests.mail.waiting import Waiting

FAULTS: dict[str, NoRoom] = {"disk": full_disk, "limit": file_size_limit}


def report(how: str, folder: Path) -> dict[str, object]:
    if how == "disk":
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
        subprocess.run(mount, check=True)
    path = folder / "mail.db"
    subject = Waiting(path)
    do(subject, Keep(mail("before")))
    box = do(subject, Claim("agent:a", "h1"))
    with FAULTS[how](folder):
        keeps = [Keep(mail(f"lost {number}", payload=b"x" * 5000)) for number in range(50)]
        outcomes = subject.submit_all([*keeps])
        [read] = subject.submit_all([Read(box)])
        subject.submit_all([Expire(now=0.0, limit=1)])
        is_failing = subject.store.is_failing
        count = subject.store.totals.count
    subject.submit_all([Expire(now=0.0, limit=1)])
    is_failing_after = subject.store.is_failing
    kept = do(subject, Keep(mail("after")))
    names = [each.message_id for each in do(subject, Read(box))]
    subject.restart()
    count_after = subject.store.totals.count
    subject.close()
    return {
        "failed": sum(isinstance(each, StoreFailed) for each in outcomes),
        "is failing": is_failing,
        "is failing after": is_failing_after,
        "read meanwhile": [each.message_id for each in read],
        "counted meanwhile": count,
        "recovered": kept.is_new,
        "names": names,
        "counted after": count_after,
        "integrity": select(path, "PRAGMA integrity_check")[0][0],
    }


if __name__ == "__main__":
    with capture_logs() as logs:
        found = report(sys.argv[1], Path(sys.argv[2]))
    print(json.dumps({**found, "logs": [line["event"] for line in logs]}))
