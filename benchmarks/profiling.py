"""Where the time of some work goes: by kind of work, and by kernel. `reading` calls this."""

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch.profiler import ProfilerActivity, profile

SMALL = 128  # the ranks of adapters are smaller, the sides of weights larger
TOP = 15  # kernels that are named


def tell_work(work: Callable[[], object], device: str) -> dict[str, float | list]:
    """Milliseconds by kind of work, as the device counts them, and the longest kernels, which are printed as well."""
    on_gpu = device == "cuda"
    key = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_gpu], record_shapes=True) as seen:
        work()
        if on_gpu:
            torch.cuda.synchronize()

    def milliseconds(event: object) -> float:
        return getattr(event, key) / 1e3

    # A kernel's time stands at the kernel, at the operator that has begun it, and at whatever else encloses both.
    kernels = [event for event in seen.key_averages() if is_kernel(event, on_gpu)]
    kernels.sort(key=milliseconds, reverse=True)
    whole = sum(map(milliseconds, kernels))
    kinds: Counter = Counter()
    for event in seen.key_averages(group_by_input_shape=True):
        if event.key.startswith("aten::") and "CUDA" not in str(event.device_type):
            kinds[kind_of(event.key, event.input_shapes)] += milliseconds(event)
    if on_gpu:  # compiled ones are begun by no operator
        kinds["elementwise"] += sum(milliseconds(event) for event in kernels if event.key.startswith("triton_"))
    top = [[event.key[:110], round(milliseconds(event), 2), event.count] for event in kernels[:TOP]]
    for name, ms, count in top:
        print(f"{ms:9.2f} ms {count:6d}  {name}", flush=True)
    told = {f"{kind}_ms": round(ms, 1) for kind, ms in kinds.most_common()}
    return told | {"other_ms": round(whole - kinds.total(), 1), "kernels_ms": round(whole, 1), "top": top}


def is_kernel(event: object, on_gpu: bool) -> bool:
    """Whether an event is a kernel's own; on a CPU every operator is."""
    return not on_gpu or "CUDA" in str(event.device_type) and not event.key.startswith("##")


def kind_of(name: str, shapes: Sequence[Sequence[int]]) -> str:
    """What an operator belongs to, by its name and the sizes of what it is given."""
    name = name.removeprefix("aten::")
    most = max((len(shape) for shape in shapes), default=0)  # dimensions
    if name in ("mm", "addmm", "addmm_"):
        matrices = [shape for shape in shapes if len(shape) == 2]
        return "adapter" if matrices and min(matrices[-1]) < SMALL else "products"
    if "attention" in name or name in ("bmm", "_softmax"):
        return "attention"
    if name == "copy_" and most > 3:
        return "attention" if most > 4 else "cache"  # keys, written once for every head of a group, or into the cache
    if name in ("index", "index_put_", "_index_put_impl_", "index_select", "nonzero"):
        return "cache"
    return "elementwise"
