"""Does ``bertkit serve`` answer rightly while things go wrong? Each case starts the server and checks every answer.

    python benchmarks/serve_faults.py --out benchmarks/results/serve_faults_CPU_DATE.md
    python benchmarks/serve_faults.py --quick
    python benchmarks/serve_faults.py --memory --quick

Vectors of texts of 1 to 100 words are computed beforehand, without a server. A request is lost if the server had taken
it and it got no answer: none may be, but for those that a killed worker was computing, at most one a client, whose
connections must end at once. No answer may be wrong. The exit status is 0 only if all of that holds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import counted
from machine import about, block, publish, resident_bytes
from serving.fault_client import Connection, Load, Tally, embedding, refused_as, tallied, until, vectors_right
from serving.fault_server import ADMIN, TAINT, Models, prepared, served

#: Most growth of resident memory from the first tenth of the requests to the last.
MOST_GROWTH = 1.03
#: Most memory at rest of four workers and their supervisor, of that of one process.
MOST_OF_FOUR = 1.3


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done: as the issue says, or quickly."""

    seconds: float = 10.0
    clients: int = 16
    slow: int = 200
    idle: int = 10_000
    requests: int = 200_000


QUICK = Sizes(seconds=1.5, clients=8, slow=50, idle=1000, requests=5000)


@dataclass(frozen=True, slots=True)
class Row:
    """What a case showed.

    lost: requests that were taken and not answered, beyond those that a case allows.
    seconds: from the fault until all is as before, or until the server had stopped.
    held: whether everything else that the case asks for was so; else ``note`` says what was not.
    """

    case: str
    tally: Tally
    lost: int
    seconds: float
    held: bool = True
    note: str = ""

    @property
    def numbers(self) -> dict[str, object]:
        """For the line of JSON."""
        counts = {name: getattr(self.tally, name) for name in ("sent", "right", "wrong", "refused", "broken", "left")}
        return {**counts, "lost": self.lost, "seconds": self.seconds, "good": self.good, "note": self.note}

    @property
    def good(self) -> bool:
        return self.held and not self.tally.wrong and not self.lost and self.tally.right > 0


async def killed_worker(models: Models, sizes: Sizes, folder: Path) -> Row:
    """One of two workers is killed (-9)."""
    with served(folder, f"model={models.folder / 'model'}", "--workers", "2") as server:
        await until(server.ready)
        load = Load(server.port, models.queries, sizes.clients)
        await asyncio.sleep(sizes.seconds / 3)
        victim = server.workers[0]
        os.kill(victim, signal.SIGKILL)
        seconds = await until(lambda: len(server.workers) == 2 and victim not in server.workers)
        await asyncio.sleep(sizes.seconds * 2 / 3)
        tally = await load.stop()
        return Row("kill -9 of a worker", tally, max(0, tally.broken - sizes.clients) + tally.refused, seconds)


async def poison(models: Models, sizes: Sizes, folder: Path) -> Row:
    """Of 100 requests one that cannot be answered: an empty text, one that is too long, one that makes NaN."""
    bad = [
        embedding([""], "model", refused_as(422, "empty")),
        embedding([models.texts[0], "river " * 2000], "model", refused_as(422, "too_long"), overflow="error"),
        embedding(["river " * (TAINT + 5)], "tainted", refused_as(424, "damaged_model")),
    ]
    good = [embedding(models.texts[at : at + 1], "tainted", _right(models, at)) for at in range(len(models.texts))]
    queries = [*models.queries, *good]
    mixed = [*queries * 3, *bad * max(1, round(len(queries) * 3 * 0.01 / len(bad)))]
    given = [f"{name}={models.folder / name}" for name in ("model", "tainted")]
    with served(folder, *given) as server:
        await until(server.ready)
        load = Load(server.port, mixed, sizes.clients)
        await asyncio.sleep(sizes.seconds)
        tally = await load.stop()
        failed = await server.metric("bertkit_batcher_failed_total")
        note = f"{failed:.0f} failed in batches"
        return Row("1 % poison", tally, tally.unanswered, 0.0, failed > 0, note)


def _right(models: Models, at: int) -> Callable[[int, bytes], bool]:
    return vectors_right(models.vectors[at : at + 1])


async def leaving_clients(models: Models, sizes: Sizes, folder: Path) -> Row:
    """One client in ten closes its connection as soon as it has sent its request."""
    with served(folder, f"model={models.folder / 'model'}") as server:
        await until(server.ready)
        load = Load(server.port, models.queries, sizes.clients, leaving=0.1)
        await asyncio.sleep(sizes.seconds)
        tally = await load.stop()

        async def empty() -> bool:
            return await server.metric("bertkit_queue_requests") == 0

        seconds = await until(empty)
        return Row("clients that leave", tally, tally.unanswered, seconds, tally.left > 0)


async def slow_loris(models: Models, sizes: Sizes, folder: Path) -> Row:
    """Connections that send a byte now and then, half of them of a head, half of a body."""
    with served(folder, f"model={models.folder / 'model'}", "--body-timeout", "2") as server:
        await until(server.ready)
        load = Load(server.port, models.queries, sizes.clients)
        head = b"POST /v1/embed HTTP/1.1\r\nhost: localhost\r\n"
        begun = time.monotonic()

        async def slowly(number: int) -> float:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(head if number % 2 else head + b"content-length: 1000\r\n\r\n{")
            reading = asyncio.ensure_future(reader.read())
            while not reading.done():
                with suppress(OSError):
                    writer.write(b"x" if number % 2 else b" ")
                await asyncio.wait((reading,), timeout=0.2)
            with suppress(OSError):
                reading.result()
            writer.close()
            return time.monotonic() - begun

        ended = await asyncio.wait_for(asyncio.gather(*map(slowly, range(sizes.slow))), 60)
        tally = await load.stop()
        case = f"{sizes.slow:,} slow-loris connections"
        return Row(case, tally, tally.unanswered, max(ended), max(ended) < 15, "closed by the server")


async def idle_connections(models: Models, sizes: Sizes, folder: Path) -> Row:
    """Connections that say nothing, and of which some ask in the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    number = min(sizes.idle, hard - 200)
    with served(folder, f"model={models.folder / 'model'}") as server:
        await until(server.ready)
        load = Load(server.port, models.queries, sizes.clients)
        before, connections = resident_bytes(server.process.pid), [Connection(server.port) for _ in range(number)]
        for connection in connections:
            await connection.open()
        await asyncio.sleep(sizes.seconds)
        alive = [await connection.ask("/health") for connection in connections[:: max(1, number // 100)]]
        memory = resident_bytes(server.process.pid) - before
        for connection in connections:
            connection.close()
        tally = await load.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        held = all(status == 200 for status, _ in alive) and number == sizes.idle
        note = f"{memory / 1e6:.0f} MB more, {number:,} of {sizes.idle:,} open"
        return Row(f"{sizes.idle:,} idle connections", tally, tally.unanswered, 0.0, held, note)


async def reloading(models: Models, sizes: Sizes, folder: Path, workers: int) -> Row:
    """Other weights under load: by /admin/reload of one process, by SIGHUP of several."""
    own = models.copy(folder / f"reloaded-{workers}")
    with served(folder, f"model={own}", "--workers", str(workers)) as server:
        await until(server.ready)
        load = Load(server.port, models.either, sizes.clients, afresh=True)
        await asyncio.sleep(sizes.seconds / 3)
        shutil.copy(models.folder / "other" / "model.safetensors", own / "new")
        (own / "fingerprint.json").unlink(missing_ok=True)
        os.replace(own / "new", own / "model.safetensors")
        seconds = await server.reload()
        await asyncio.sleep(sizes.seconds / 3)
        tally = await load.stop()
        after = Tally()
        for query in models.other_queries:
            await tallied(after, query, Connection(server.port))
        held = after.right == len(models.other_queries)
        case = f"reload under load, {counted(workers, 'worker')}"
        return Row(case, tally, tally.unanswered, seconds, held, f"{after.right} new answers after it")


async def terminated(models: Models, sizes: Sizes, folder: Path, workers: int) -> Row:
    """SIGTERM while requests wait that were taken, and more come."""
    with served(folder, f"model={models.folder / 'model'}", "--workers", str(workers), "--grace", "60") as server:
        await until(server.ready)
        large = embedding(models.texts[:100], "model", vectors_right(models.vectors[:100]))
        taken = Tally()
        waiting = [asyncio.ensure_future(tallied(taken, large, Connection(server.port))) for _ in range(12)]
        load = Load(server.port, models.queries, sizes.clients, afresh=True)
        await asyncio.sleep(0.3)
        waited = 12 - sum(task.done() for task in waiting)
        server.stop()
        seconds = await server.ended()
        await asyncio.gather(*waiting)
        tally = await load.stop()
        lost = 12 - taken.right
        tally.right, tally.wrong = tally.right + taken.right, tally.wrong + taken.wrong
        tally.examples += taken.examples
        code = server.process.returncode
        case = f"SIGTERM under load, {counted(workers, 'worker')}"
        return Row(case, tally, lost, seconds, code == 0 and waited > 0, f"{waited} waited; exit status {code}")


async def terminated_bulk(models: Models, sizes: Sizes, folder: Path) -> Row:
    """SIGTERM while a bulk request without an end runs: lines that were read are answered, and the rest is named."""
    with served(folder, f"model={models.folder / 'model'}", "--grace", "4") as server:
        await until(server.ready)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 22)
        head = b"POST /v1/bulk/embed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n"
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n")

        async def send() -> None:
            with suppress(OSError):
                for number in range(10**9):
                    body = {"model": "model", "input": models.texts[number % 120], "encoding": "base64"}
                    line = json.dumps(body).encode() + b"\n"
                    writer.write(b"%x\r\n%b\r\n" % (len(line), line))
                    await writer.drain()
                    await asyncio.sleep(0)  # or what comes back is not read while there is room to send

        sending = asyncio.ensure_future(send())
        await reader.readuntil(b"\r\n\r\n")
        lines, begun = b"", 0.0
        while size := int(await reader.readline(), 16):
            if not lines:
                begun = time.monotonic()
                server.stop()
            lines += await reader.readexactly(size)
            await reader.readline()
            if b"not_ready" in lines[-1000:]:  # a client that goes on sending may lose what it has not read
                sending.cancel()
                writer.write(b"0\r\n\r\n")
        writer.close()
        await server.ended()
        seconds = time.monotonic() - begun
        tally, last = Tally(), json.loads(lines.splitlines()[-1])
        for number, line in enumerate(lines.splitlines()[:-1]):
            at = number % 120
            right = json.loads(line)["line"] == number + 1 and _right(models, at)(200, line)
            tally.right, tally.wrong = tally.right + right, tally.wrong + (not right)
        held = last.get("error", {}).get("type") == "not_ready" and server.process.returncode == 0
        note = f"ended at line {last['line']:,} and said so"
        return Row("SIGTERM in a bulk request", tally, 0, seconds, held, note)


async def full_disk(models: Models, sizes: Sizes, folder: Path) -> Row:
    """All that the server writes goes to a device that is full."""
    given = (f"model={models.folder / 'model'}", "--log", "json", "--workers", "2")
    with served(folder, *given, log=Path("/dev/full")) as server:
        await until(server.ready)
        load = Load(server.port, [*models.queries, embedding([""], "model", refused_as(422, "empty"))], sizes.clients)
        await asyncio.sleep(sizes.seconds)
        tally = await load.stop()
        server.stop()
        await server.ended()
        return Row("disk full for logs", tally, tally.unanswered, 0.0, server.process.returncode == 0)


async def damaged_folder(models: Models, sizes: Sizes, folder: Path, workers: int) -> Row:
    """A model's files are overwritten, cut and broken, and each time it is told to reload; then it is well again."""
    own = models.copy(folder / f"damaged-{workers}")
    weights, good = own / "model.safetensors", (own / "model.safetensors").read_bytes()
    with served(folder, f"model={own}", "--workers", str(workers)) as server:
        await until(server.ready)
        load, refusals = Load(server.port, models.queries, sizes.clients), 0

        async def damage(change: Callable[[], object]) -> None:
            nonlocal refusals
            change()
            await asyncio.sleep(sizes.seconds / 6)
            if workers == 1:
                refusals += (await server.ask("/admin/reload", b"{}", x_api_key=ADMIN))[0] == 424
            else:
                before = server.said("not reloaded")
                server.process.send_signal(signal.SIGHUP)
                await until(lambda: server.said("not reloaded") > before)
                refusals += 1

        def overwrite() -> None:
            with weights.open("r+b") as file:
                file.write(os.urandom(len(good)))

        await damage(overwrite)
        await damage(lambda: os.truncate(weights, 0))
        await damage(lambda: weights.write_bytes(good[: len(good) // 2]))
        await damage(lambda: (own / "config.json").write_text("{"))
        tally = await load.stop()
        shutil.copytree(models.folder / "other", own, dirs_exist_ok=True)
        seconds = await server.reload()
        after = Tally()
        for query in models.other_queries:
            await tallied(after, query, Connection(server.port))
        held = refusals == 4 and after.right == len(models.other_queries)
        note = f"{refusals} of 4 broken folders refused, then {after.right} new answers"
        case = f"model folder damaged, {counted(workers, 'worker')}"
        return Row(case, tally, tally.unanswered, seconds, held, note)


async def memory(models: Models, sizes: Sizes, folder: Path) -> Row:
    """Resident memory after a tenth of the requests and after all."""
    with served(folder, f"model={models.folder / 'model'}") as server:
        await until(server.ready)
        load = Load(server.port, models.queries, 64)
        await until(lambda: load.tally.sent >= sizes.requests / 10, 3600)
        early = resident_bytes(server.process.pid)
        await until(lambda: load.tally.sent >= sizes.requests, 36_000)
        late = resident_bytes(server.process.pid)
        tally = await load.stop()
        after = f"{late / 1e6:.1f} MB after {sizes.requests:,}"
        note = f"{early / 1e6:.1f} MB after {sizes.requests // 10:,} requests, {after}"
        return Row("memory", tally, tally.unanswered, 0.0, late <= early * MOST_GROWTH, note)


async def shared_weights(models: Models, sizes: Sizes, folder: Path) -> Row:
    """Proportional memory (PSS) of one process, and of four workers with their supervisor: at rest and under load.

    Under load each has room for batches of its own, which is not weights.
    """
    found: dict[int, list[list[int]]] = {}
    total = Tally()
    for workers in (1, 4):
        with served(folder, f"model={models.folder / 'model'}", "--workers", str(workers)) as server:
            await until(server.ready)
            found[workers] = [server.proportional_bytes()]
            load = Load(server.port, models.queries, 64, afresh=True)  # so that every worker gets some
            await asyncio.sleep(sizes.seconds)
            found[workers].append(server.proportional_bytes())
            tally = await load.stop()
        for name in ("right", "wrong", "refused", "broken", "left"):
            setattr(total, name, getattr(total, name) + getattr(tally, name))
    notes, ratios = [], []
    for when, (one,), (supervisor, *four) in zip(("at rest", "under load"), found[1], found[4], strict=True):
        assert len(four) == 4
        ratios.append((supervisor + sum(four)) / one)
        notes.append(
            f"{when} {one / 1e6:.0f} MB, four {sum(four) / 1e6:.0f} ({sum(four) / one:.2f} of one), with their "
            f"supervisor's {supervisor / 1e6:.0f} {ratios[-1]:.2f}"
        )
    return Row("memory of four workers", total, total.unanswered, 0.0, ratios[0] < MOST_OF_FOUR, "; ".join(notes))


Case = Callable[[Models, Sizes, Path], Awaitable[Row]]


def _with_workers(case: Callable[[Models, Sizes, Path, int], Awaitable[Row]], workers: int) -> Case:
    return lambda models, sizes, folder: case(models, sizes, folder, workers)


CASES: dict[str, Case] = {
    "kill": killed_worker,
    "poison": poison,
    "leave": leaving_clients,
    "loris": slow_loris,
    "idle": idle_connections,
    "reload": _with_workers(reloading, 1),
    "reload-2": _with_workers(reloading, 2),
    "term": _with_workers(terminated, 1),
    "term-2": _with_workers(terminated, 2),
    "term-bulk": terminated_bulk,
    "log": full_disk,
    "memory-4": shared_weights,
    "folder": _with_workers(damaged_folder, 1),
    "folder-2": _with_workers(damaged_folder, 2),
}


def shown(rows: Sequence[Row]) -> list[str]:
    """The table as lines of Markdown."""
    lines = [
        "| case | requests | wrong answers | lost | refused or broken | seconds | |",
        "|---|" + "--:|" * 5 + "---|",
    ]
    for row in rows:
        tally, verdict = row.tally, "holds" if row.good else "**DOES NOT HOLD**"
        numbers = f"{tally.sent:,} | {tally.wrong} | {row.lost} | {tally.refused + tally.broken} | {row.seconds:.1f}"
        lines.append(f"| {row.case} | {numbers} | {verdict}{'; ' if row.note else ''}{row.note} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bertkit-tiny-en", help="an encoder that reads 128 tokens or more")
    parser.add_argument("--only", nargs="+", choices=CASES, help="these cases; by default all")
    parser.add_argument("--quick", action="store_true", help="a small form of each")
    parser.add_argument("--memory", action="store_true", help="only the growth of memory over many requests")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes()
    cases = {"memory": memory} if given.memory else {name: CASES[name] for name in given.only or CASES}
    rows = []
    with tempfile.TemporaryDirectory() as place:
        models = prepared(given.model, Path(place))
        for name, case in cases.items():
            print(f"{name} ...", file=sys.stderr, flush=True)
            row = asyncio.run(case(models, sizes, Path(place)))
            rows.append(row)
            for what, count in row.tally.examples.most_common(3):
                print(f"  {count} x {what}", file=sys.stderr)
    facts = about(os.cpu_count() or 1)
    lines = ["# bertkit serve while things go wrong", "", *shown(rows), "", *block(facts)]
    publish(lines, {**facts, "cases": {row.case: row.numbers for row in rows}}, given.out)
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
