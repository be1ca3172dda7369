"""Training speed, variant by variant, and two loss curves, in one short session on a GPU.

Every variant is a process of its own, so that one that fails loses nothing else. All compile at
the same time; then each is measured and profiled alone; then the old code and the fastest new
variant take the same steps on the same samples. `bench_train_gpu.sh` calls it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

VARIANTS = ("base", "eager", "compiled", "tiled", "quick")  # "base" is another package
ROWS = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="runs/gputrain/base", help="folder of the old package")
    parser.add_argument("--data", default="runs/gputrain/train.parquet")
    parser.add_argument("--out", default=os.environ.get("OUT", "runs/gputrain/out"))
    parser.add_argument("--seconds", type=float, default=165, help="for all of it")
    parser.add_argument("--turn", type=float, default=30, help="seconds to measure one variant")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--curve-batch", type=int, default=256)
    parser.add_argument("--curve-steps", type=int, default=1000)
    parser.add_argument("--tiny", action="store_true", help="a small network, to try the script")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant == "kernels":
        time_kernels(options)
    elif options.variant:
        Child(options).serve()
    else:
        lead(options)


# The parent: starts the variants, gives each its turn, writes what came back.


class Process:
    """A variant in a process of its own that reads orders and answers in lines of JSON."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name = name
        package = options.base if name == "base" else str(Path(__file__).parents[1])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        rest = [f"--{k.replace('_', '-')}={v}" for k, v in vars(options).items() if k in KEPT]
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--variant", name, *rest, *["--tiny"] * options.tiny],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(Path(options.out) / f"{name}.err").open("w"),
            env={**os.environ, "PYTHONPATH": path, "TORCHINDUCTOR_COMPILE_THREADS": "4"},
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.left = b""
        self.gone = False

    def order(self, word: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()

    def lines(self) -> list[dict[str, Any]]:
        """What it said since; an end without a word is said here."""
        chunk = self.process.stdout.read()
        if chunk == b"":
            self.gone = True
            return [{"kind": "gone", "code": self.process.wait()}]
        *whole, self.left = (self.left + (chunk or b"")).split(b"\n")
        return [json.loads(x) for x in whole if x.startswith(b"{")]


KEPT = ("data", "batch", "curve_batch", "curve_steps", "out")


def await_kind(processes: list[Process], kind: str, until: float, report: Any = None) -> dict:
    """Listen until every process has said `kind` or is gone, or the time is over."""
    found: dict[str, dict] = {}
    with selectors.DefaultSelector() as selector:
        for p in processes:
            if not p.gone:
                selector.register(p.process.stdout, selectors.EVENT_READ, p)
        while selector.get_map() and time.monotonic() < until:
            for key, _ in selector.select(max(0.0, until - time.monotonic())):
                for line in key.data.lines():
                    if report:
                        report(key.data.name, line)
                    if line["kind"] == "gone":
                        print(f"{key.data.name}: ended with {line['code']}", flush=True)
                    if line["kind"] == kind:
                        found[key.data.name] = line
                    if line["kind"] in (kind, "gone") and key.fileobj in selector.get_map():
                        selector.unregister(key.fileobj)
    return found


def lead(options: argparse.Namespace) -> None:
    begin = time.monotonic()
    end = begin + options.seconds
    Path(options.out).mkdir(parents=True, exist_ok=True)
    processes = {name: Process(name, options) for name in ("kernels", *options.variants)}
    results: dict[str, Any] = {}

    def write() -> None:
        (Path(options.out) / "bench_train.json").write_text(json.dumps(results, indent=1))

    ready = await_kind(list(processes.values()), "ready", begin + 0.5 * options.seconds)
    print(f"{time.monotonic() - begin:.0f} s: ready: {', '.join(ready)}", flush=True)
    for name in [n for n in processes if n not in ready]:  # it would disturb the others
        processes[name].process.kill()
    for name in ready:
        processes[name].order("measure")
        until = min(end, time.monotonic() + options.turn)
        results |= await_kind([processes[name]], "measured", until)
        if name not in results:
            processes[name].process.kill()
            print(f"{name}: no result within its time", flush=True)
        elif name != "kernels":
            found = results[name]
            print(
                f"{time.monotonic() - begin:.0f} s: {name}: {found['samples_per_s']} samples/s, "
                f"{found['step_ms']} ms a step, kernels {found['kernels_ms']} ms, "
                f"{found['launches']} launches, warm-up {found['warm_up_s']} s, "
                f"{found['memory_GiB']} GiB, loss {found['loss']}",
                flush=True,
            )
        write()
    for name in ("base", *[n for n in VARIANTS[1:] if n in results]):
        for row in results.get(name, {}).get("top", [])[: ROWS if name in ("base", "quick") else 8]:
            print(f"{name:8} {row['ms']:8.3f} ms {row['count']:6.1f} x {row['name'][:70]}")
    print(json.dumps(results.get("kernels", {}).get("rows")), flush=True)

    new = [n for n in VARIANTS[1:] if n in results]
    best = max(new, key=lambda n: results[n]["samples_per_s"], default="")
    pair = [n for n in ("base", best) if n in results]
    for name, p in processes.items():
        if name not in pair:
            p.process.kill()
    curves: dict[str, list[float]] = {name: [] for name in pair}
    results["curves"] = curves

    def collect(name: str, line: dict[str, Any]) -> None:
        if line["kind"] == "loss":
            curves[name].append(line["loss"])

    for name in pair:
        processes[name].order("curve")
    await_kind([processes[n] for n in pair], "done", end - 1, collect)
    print(f"{time.monotonic() - begin:.0f} s: loss, mean of 50 steps: step, {', '.join(pair)}")
    for i in range(max(map(len, curves.values()), default=0)):
        print((i + 1) * 50, *[c[i] if i < len(c) else "-" for c in curves.values()])
    write()
    for p in processes.values():
        p.process.kill()
    complaints = ""
    for path in sorted(Path(options.out).glob("*.err")):  # in one file: few come back
        complaints += f"== {path.stem}\n{path.read_text(errors='replace')[-6000:]}\n"
        path.unlink()
    (Path(options.out) / "errors.txt").write_text(complaints)
    print(f"{time.monotonic() - begin:.0f} s in all", flush=True)


# The children: one variant each.


def say(kind: str, **facts: Any) -> None:
    print(json.dumps({"kind": kind, **facts}), flush=True)


class Child:
    """One variant: warms up, then measures or trains when told to."""

    def __init__(self, options: argparse.Namespace) -> None:
        import torch

        from gryphone.config import PRESETS
        from gryphone.data.store import InkStore, load_packed
        from gryphone.kinds import build_model
        from gryphone.tokens import build_tokenizer
        from gryphone.training.augment import Augment
        from gryphone.training.settings import SourceConfig, TrainConfig

        self.options, self.name = options, options.variant
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        packed = load_packed(Path(options.data), "crohme")
        tokenizer = build_tokenizer("sat", [x.split(" ") for x in packed.labels])
        self.sizes = tuple(len(v) for v in tokenizer.vocabularies)
        self.store = InkStore.of(packed, tokenizer, 150, self.device)
        model = PRESETS["ink"]
        if options.tiny:
            model = replace(model, width=96, encoder_depth=2, decoder_depth=2)
        self.config = TrainConfig(
            name="bench",
            sources=(SourceConfig(options.data),),
            model=model,
            batch=options.batch,
            augment=Augment(),
        )
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.manual_seed(0)
        self.model = build_model(model, self.sizes).to(self.device)
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.prepare()

    def prepare(self) -> None:
        """What sets the variants apart."""
        if self.name in ("base", "compiled", "tiled"):
            self.model.compile_blocks()
        self.aside: Any = lambda _: contextlib.nullcontext()
        if self.name == "base":
            return
        from gryphone.training import quick

        self.aside = quick.aside
        if self.name == "quick":
            say("note", text=quick.quicken(self.model))
        if self.name == "tiled":
            from gryphone.training.attention import attend_tiled

            for module in self.model.modules():
                if hasattr(module, "attend"):
                    module.attend = attend_tiled

    def network(self, *given: Any) -> Any:
        import torch

        # As accelerate does it: the network alone computes in half precision.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return self.model(*given)

    def reset(self, batch: int) -> None:
        from gryphone.training.mixture import Mixture, StoreSource
        from gryphone.training.train import make_optimizer

        self.model.load_state_dict(self.start)
        self.model.train()
        self.optimizer = make_optimizer(self.model, self.config, self.device)
        self.mixture = Mixture.of([StoreSource(self.store)], [1.0], batch)

    def step(self, number: int, rate: float = 1e-4) -> Any:
        import torch

        from gryphone.training.objective import seeded, training_loss

        for group in self.optimizer.param_groups:
            group["lr"] = rate
        generator = seeded(0, number, 0, self.device)
        with self.aside(self.device):
            batch = self.mixture.sample(generator)
        loss, _ = training_loss(self.network, self.config, batch, self.sizes, generator)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def synchronize(self) -> None:
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def serve(self) -> None:
        import torch

        begin = time.monotonic()
        self.reset(self.options.batch // 2)  # all variants warm up at once: memory for all
        for number in range(3):
            self.step(number)
        self.synchronize()
        self.warm_up = round(time.monotonic() - begin, 1)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # others warm up beside it
        say("ready", warm_up_s=self.warm_up)
        for line in sys.stdin:
            {"measure": self.measure, "curve": self.curve}[line.strip()]()

    def measure(self) -> None:
        import torch

        gpu = self.device.type == "cuda"
        self.reset(self.options.batch)
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        steps = 24 if gpu else 2
        for number in range(3 if gpu else 0):
            self.step(90 + number)
        self.synchronize()
        begin = time.monotonic()
        losses = [self.step(100 + number) for number in range(steps)]
        self.synchronize()
        elapsed = (time.monotonic() - begin) / steps
        activities = [
            torch.profiler.ProfilerActivity.CUDA if gpu else torch.profiler.ProfilerActivity.CPU
        ]
        with torch.profiler.profile(activities=activities) as profile:
            for number in range(3):
                self.step(200 + number)
            self.synchronize()
        rows = [
            {
                "name": e.key,
                "ms": (e.self_device_time_total if gpu else e.self_cpu_time_total) / 3e3,
                "count": e.count / 3,
            }
            for e in profile.key_averages()
            if not gpu or e.device_type == torch.autograd.DeviceType.CUDA
        ]
        rows.sort(key=lambda row: -row["ms"])
        say(
            "measured",
            samples_per_s=round(self.options.batch / elapsed, 1),
            step_ms=round(elapsed * 1e3, 2),
            kernels_ms=round(sum(row["ms"] for row in rows), 2),
            launches=round(sum(row["count"] for row in rows)),
            warm_up_s=self.warm_up,
            memory_GiB=round(torch.cuda.max_memory_allocated() / 2**30, 1) if gpu else 0.0,
            loss=round(float(torch.stack(losses).mean()), 4),
            top=rows[:ROWS],
        )
        if gpu:
            torch.cuda.empty_cache()

    def curve(self) -> None:
        import torch

        self.reset(self.options.curve_batch)
        losses = []
        for number in range(self.options.curve_steps):
            losses.append(self.step(1000 + number, 1e-3 * min(1.0, (number + 1) / 300)))
            if len(losses) == 50 or number + 1 == self.options.curve_steps:
                say("loss", loss=round(float(torch.stack(losses).mean()), 4))
                losses.clear()
        say("done")


def time_kernels(options: argparse.Namespace) -> None:
    """Attention of the three kinds in the network, forward and backward, several kernels."""
    import torch

    if not torch.cuda.is_available():
        return
    from gryphone.model import Packing, attend
    from gryphone.training import attention

    torch.manual_seed(0)
    patches = (torch.rand(1024, device="cuda") ** 1.3 * 360 + 8).long()  # mean 165
    tokens = torch.tensor([16, 24, 32, 48], device="cuda").repeat_interleave(
        torch.tensor([630, 265, 104, 25], device="cuda")
    )[torch.randperm(1024, device="cuda")]
    kinds = {
        "patches": (Packing.of(patches),) * 2,
        "tokens": (Packing.of(tokens.repeat_interleave(2)),) * 2,
        "cross": (Packing.of(tokens * 2), Packing.of(patches)),
    }

    def efficient(q: Any, k: Any, v: Any, rows: Packing, columns: Packing, _: float) -> Any:
        where = (rows.offsets, columns.offsets, rows.longest, columns.longest)
        found = torch.ops.aten._efficient_attention_forward(
            q[None], k[None], v[None], None, *where, 0.0, 0, True
        )
        return found[0][0]

    def tiled(**changes: int) -> Any:
        def call(*given: Any) -> Any:
            attention._plan = lambda *sizes: {**plan(*sizes), **changes}
            return attention.attend_tiled(*given)

        return call

    plan = attention._plan
    ways = {"flash": attend, "efficient": efficient, "tiled": tiled()}
    for stages in (1, 3):
        ways[f"tiled, {stages} stages"] = tiled(num_stages=stages)
    ways["tiled, 8 warps"] = tiled(num_warps=8)
    ways["tiled, 128 x 64"] = tiled(ROWS=128, COLUMNS=64, num_warps=8)

    def once(way: Any, kind: str) -> tuple[Any, Any]:
        rows, columns = kinds[kind]
        sizes = int(rows.offsets[-1]), int(columns.offsets[-1])
        q = torch.randn(sizes[0], 6, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        kv = torch.randn(sizes[1], 2, 6, 64, device="cuda", dtype=torch.bfloat16)
        k, v = kv.requires_grad_().unbind(1)

        def forward() -> Any:
            return way(q, k, v, rows, columns, 0.0)

        out = forward()
        grad = torch.randn_like(out)
        # `_plan` is asked again in the backward pass: set by the forward call just before.
        return forward, lambda: (forward(), torch.autograd.grad(forward(), (q, kv), grad))

    def check() -> dict[str, float]:
        """Relative error of `tiled` against float32, for each kind: output and gradients."""
        found = {}
        for kind, (rows, columns) in kinds.items():
            sizes = int(rows.offsets[-1]), int(columns.offsets[-1])
            q, k, v = (torch.randn(n, 6, 64, device="cuda").bfloat16() for n in (*sizes, sizes[1]))
            grad = torch.randn_like(q)
            answers = []
            for way, dtype in ((tiled(), torch.bfloat16), (attend, torch.float32)):
                leaves = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
                out = way(*leaves, rows, columns, 0.0)
                answers.append([out, *torch.autograd.grad(out, leaves, grad.to(dtype))])
            pairs = zip(*answers, strict=True)
            found[kind] = max(float((a - b).norm() / b.norm()) for a, b in pairs)
        return found

    rows: dict[str, Any] = {}
    calls: dict[tuple[str, str], Any] = {}
    for name, way in ways.items():
        for kind in list(kinds)[: 1 if "," in name else 3]:  # compiling takes its time
            try:
                calls[name, kind] = once(way, kind)
                calls[name, kind][1]()
            except Exception as error:  # one kernel less, the others count
                print(f"{name} {kind}: {error!r}"[:500], file=sys.stderr, flush=True)
                calls.pop((name, kind), None)
    torch.cuda.synchronize()
    say("ready")
    sys.stdin.readline()
    rows["relative error of tiled"] = check()
    for (name, kind), (forward, both) in calls.items():
        times = []
        for call in (forward, both):
            for repeat in (2, 8):
                marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                marks[0].record()
                for _ in range(repeat):
                    call()
                marks[1].record()
                torch.cuda.synchronize()
            times.append(marks[0].elapsed_time(marks[1]) / repeat)
        rows[f"{kind}, {name}"] = [round(times[0], 3), round(times[1] - 2 * times[0], 3)]
    say("measured", rows=rows)


if __name__ == "__main__":
    main()
