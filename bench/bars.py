"""Reads the JSON of Google Benchmark from bench/micro/wire and bench/micro/proto, and prints each bar with its value.

The best of repeated measurements counts: on a shared machine the others were disturbed."""

import json
import sys


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def best(report, name, key="cpu_time", most=False):
    values = [b[key] for b in report["benchmarks"] if b["run_name"] == name and b["run_type"] == "iteration"]
    if not values:
        return None
    return max(values) if most else min(values)


def ratio(above, below):
    return None if above is None or below is None else above / below


def fused_copy(wire, engine):
    return best(wire, f"icrc_copy/{engine}/bytes:4096/KiB:0")


def cpu():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown"


def main():
    wire, proto = load(sys.argv[1]), load(sys.argv[2])
    chosen = wire["context"]["icrc_engine"]
    # The bar requires VPCLMULQDQ on 512-bit registers.
    fused = fused_copy(wire, chosen) if fused_copy(wire, "vpclmulqdq") is not None else None
    ns = "ns_per_message"
    bars = [
        ("fused copy + ICRC, 4 KiB, in cache, VPCLMULQDQ, of memcpy", "x", "<=", 1.25,
         ratio(fused, best(wire, "memcpy/bytes:4096/KiB:0"))),
        ("fused copy + ICRC, 4 KiB, in cache, 256-bit engine, of the 128-bit engine", "x", "<=", 0.55,
         ratio(fused_copy(wire, "vpclmulqdq256"), fused_copy(wire, "pclmulqdq"))),
        ("QP pair, WRITE 64 KiB, MTU 4096, of two fused copies a packet", "", ">=", 0.60,
         best(proto, "BM_Write64K", "of_two_fused_copies", most=True)),
        ("QP pair, WRITE 64 B, one signaled in 64, both ends", "ns", "<=", 250.0, best(proto, "BM_Write64", ns)),
        ("10,000 active QPs, 64 B, of one QP", "x", "<=", 1.5,
         ratio(best(proto, "BM_ManyQps/qps:10000/depth:16", ns), best(proto, "BM_ManyQps/qps:1/depth:16", ns))),
    ]
    print(f"CPU: {cpu()}, {wire['context']['num_cpus']} seen; ICRC engine: {chosen}")
    missed = 0
    for name, unit, sign, bar, value in bars:
        if value is None:
            print(f"  n/a   {name}: not measured here")
            continue
        good = value <= bar if sign == "<=" else value >= bar
        missed += not good
        print(f"  {'pass' if good else 'FAIL'}  {name}: {value:.2f} {unit} (bar {sign} {bar:g})")
    extra = [("SEND 64 B", best(proto, "BM_Send64", ns), "ns"), ("READ 64 B", best(proto, "BM_Read64", ns), "ns"),
             ("WRITE 64 KiB", best(proto, "BM_Write64K", "gbit_per_s", most=True), "Gbit/s"),
             ("10,000 QPs with one WRITE each, of one QP",
              ratio(best(proto, "BM_ManyQps/qps:10000/depth:1", ns), best(proto, "BM_ManyQps/qps:1/depth:1", ns)), "x")]
    extra += [(f"fused copy + ICRC, 4 KiB, in cache, {engine}", fused_copy(wire, engine), "ns")
              for engine in wire["context"]["icrc_engines"].split()]
    for name, value, unit in extra:
        if value is not None:
            print(f"        {name}: {value:.2f} {unit}")
    return 1 if missed else 0


sys.exit(main())
