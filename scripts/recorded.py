"""Recorded values: what the C++ ResNet-18 must reproduce. `reference.py --record` writes them.

Weights and images come from a formula that any language can repeat exactly. The file explains
itself: EXPLANATION goes into it.
"""

import json
import math

from common import CLASSES, LABELS, resnet18_class, write_whole

RECORD_BATCH = 2
RECORD_IMAGE = 64
RECORD_STEPS = 3
IMAGE_SCALE = 4.0
IMAGE_STREAMS = range(1000, 1000 + 64 * RECORD_STEPS, RECORD_STEPS)
PROJECTION_STREAM = 2000
NUDGE_STREAM = 3000
SHOWN_LOGITS = 16
SHOWN_ELEMENTS = 4
# How float32 is run to see how it scatters: oneDNN's kernels or PyTorch's own, and the images as
# they are or with their last bit nudged, which makes every later rounding another one.
FLOAT32_RUNS = tuple((onednn, nudge) for onednn in (True, False) for nudge in range(8))
STEP_0_FACTOR = 8.0
LATER_FACTOR = 16.0  # one more turned sign than in any run seen can outweigh all rounding
# An error at step 0 is proportional to the rounding unit, which float64 has 2^29 times finer. Adam
# then moves each weight by the sign of its gradient: the share of signs that rounding can turn is
# proportional to the unit, and so are the squares of the errors behind it.
FLOAT64_STEP_0 = 2.0**-29
FLOAT64_LATER = 2.0**-14.5

EXPLANATION = {
    "formula": (
        "h on unsigned 32-bit integers, modulo 2^32: h = i * 2654435761 + p * 40503 + 12345; "
        "h ^= h >> 16; h *= 0x85ebca6b; h ^= h >> 13; h *= 0xc2b2ae35; h ^= h >> 16. "
        "u(p, i) = h / 2^32 as a double."
    ),
    "weights": (
        "Flat row-major element i of parameter number p (position in 'parameters'): "
        "offset + scale * (u(p, i) - 0.5), exact in double, then rounded to the run's type. "
        "Buffers as constructed."
    ),
    "input": (
        "Images of step s = 0, 1, 2, flat element i of [batch, 3, image, image]: "
        "image_scale * (u(image_stream + s, i) - 0.5), rounded to the run's type. "
        "Labels: (batch * s + j) % 10 for image j."
    ),
    "run": (
        "Train mode, cross-entropy, Adam with default settings. A step: forward, loss, backward, "
        "Adam, gradients dropped. losses are those of steps 0, 1, 2; logits and gradients those "
        "of step 0; weights, moved (weights less the initial ones) and batch_norm (the running "
        "statistics) are as two Adam steps leave them, before the third forward pass."
    ),
    "numbers": (
        "[value, tolerance for float32, tolerance for float64], tolerances absolute. A digest of "
        "a tensor v: sum = sum of v[i]; l2 = root of the sum of v[i]^2; dot = sum of "
        "v[i] * (u(projection_stream + p, i) - 0.5), p being 0 where v is no parameter; all in "
        "double over the flat row-major elements; elements = [i, v[i] and its tolerances]."
    ),
    "tolerances": (
        "Values are PyTorch's in float64. float32: 8 times (after Adam: 16 times) the largest "
        "distance to them that 16 float32 runs show (two sets of kernels, last bits of the images "
        "nudged). float64: the same with that distance times 2^-29 at step 0 and times 2^-14.5 "
        "later, with what summing in double can lose. Adam moves by the gradient's sign, so it "
        "makes large of small, and later tolerances are wide in float32. So float64 is the strict "
        "comparison, float32 the one in the type that is timed. "
        "The images are, of 64 candidates, those whose step 0 keeps farthest from the kinks of "
        "ReLU and max-pool: kink_distance is the least distance, rounding in float32 moves a "
        "value by about 1e-6. The listed elements are those whose gradients in steps 0 and 1 are "
        "well above rounding."
    ),
}


def uniform(stream, count):
    """u(stream, i) for i below count, in double: EXPLANATION has the formula."""
    import torch

    mask = 0xFFFFFFFF
    h = torch.arange(count, dtype=torch.int64) * 2654435761 + stream * 40503 + 12345
    h &= mask
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & mask
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & mask
    h ^= h >> 16
    return h.to(torch.float64) / 2.0**32


def formula_of(name, shape):
    """Offset and scale of a parameter. A scale of few bits keeps offset + scale * x exact."""
    if len(shape) == 1:
        return (1.0 if name.endswith("weight") else 0.0), 0.125
    fan_in = math.prod(shape[1:])
    gain = 3.0 if name == "fc.weight" else 6.0
    return 0.0, math.floor(2.0 * math.sqrt(gain / fan_in) * 2.0**20) / 2.0**20


def formula_model(dtype):
    import torch

    model = resnet18_class()(num_classes=CLASSES).to(dtype).train()
    with torch.no_grad():
        for p, (name, parameter) in enumerate(model.named_parameters()):
            offset, scale = formula_of(name, parameter.shape)
            values = offset + scale * (uniform(p, parameter.numel()) - 0.5)
            parameter.copy_(values.reshape(parameter.shape))
    return model


def formula_images(stream, dtype, nudge=0):
    import torch

    shape = (RECORD_BATCH, 3, RECORD_IMAGE, RECORD_IMAGE)
    images = IMAGE_SCALE * (uniform(stream, math.prod(shape)) - 0.5)
    if nudge:
        steps = torch.floor(3.0 * uniform(NUDGE_STREAM + nudge, images.numel())) - 1.0
        images = images * (1.0 + steps * 2.0**-23)
    return images.to(dtype).reshape(shape)


def labels_of(step):
    return [(RECORD_BATCH * step + j) % LABELS for j in range(RECORD_BATCH)]


def kink_distance(model, images):
    """The least distance of one forward pass's values to where ReLU or max-pool turns."""
    import torch

    distances = []

    def relu_seen(module, inputs):
        distances.append(inputs[0].abs().min().item())

    def pool_seen(module, inputs):
        patches = torch.nn.functional.unfold(inputs[0], kernel_size=3, padding=1, stride=2)
        patches = patches.reshape(len(images), -1, 9, patches.shape[-1])
        best, second = patches.topk(2, dim=2).values.unbind(2)
        distances.append((best - second)[best > 0].min().item())

    hooks = [model.maxpool.register_forward_pre_hook(pool_seen)]
    for module in model.modules():
        if isinstance(module, torch.nn.ReLU):
            # ReLU works in place, so its input is looked at before it.
            hooks.append(module.register_forward_pre_hook(relu_seen))
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    return min(distances)


def calm_stream():
    """Where a value lies on a kink, rounding turns a whole path of gradients: keep away from it."""
    import torch

    model = formula_model(torch.float64)
    return max((kink_distance(model, formula_images(s, torch.float64)), s) for s in IMAGE_STREAMS)


def run_recorded(dtype, stream, onednn=True, nudge=0, **adam):
    """Three steps in the given type. Returns tensors in that type, by what they are."""
    import torch

    enabled = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = enabled and onednn
    try:
        return recorded_steps(dtype, stream, nudge, adam)
    finally:
        torch.backends.mkldnn.enabled = enabled


def recorded_steps(dtype, stream, nudge, adam):
    import torch

    model = formula_model(dtype)
    initial = copies(model.named_parameters())
    optimizer = torch.optim.Adam(model.parameters(), **adam)
    run = {"losses": []}
    for step in range(RECORD_STEPS):
        if step == 2:
            run["weights"] = copies(model.named_parameters())
            run["moved"] = {name: run["weights"][name] - initial[name] for name in initial}
            buffers = copies(model.named_buffers())
            run["batch_norm"] = {n: b for n, b in buffers.items() if n.endswith(("mean", "var"))}
        logits = model(formula_images(stream + step, dtype, nudge))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels_of(step)))
        loss.backward()
        run["losses"].append(loss.item())
        if step == 0:
            run["logits"] = logits.detach()
        if step < 2:
            kind = ("gradients", "later_gradients")[step]
            run[kind] = copies((name, p.grad) for name, p in model.named_parameters())
        optimizer.step()
        optimizer.zero_grad()
    return run


def copies(named):
    return {name: tensor.detach().clone() for name, tensor in named}


def sound_elements(*gradients):
    """A few indices, spread over the tensor, where no gradient is near rounding."""
    import torch

    sound = torch.stack([g.abs() >= 0.25 * g.square().mean().sqrt() for g in gradients])
    candidates = sound.all(dim=0).flatten().nonzero().flatten().tolist()
    last = len(candidates) - 1
    picks = {round(k * last / (SHOWN_ELEMENTS - 1)) for k in range(SHOWN_ELEMENTS)}
    return [candidates[k] for k in sorted(picks)]


def with_tolerances(value, distance, later, lost=0.0):
    """`distance` is float32's; `lost` is what the digest's own sum may lose, in any type."""
    finer, factor = (FLOAT64_LATER, LATER_FACTOR) if later else (FLOAT64_STEP_0, STEP_0_FACTOR)
    tolerances = [factor * (share * distance + lost) for share in (1.0, finer)]
    return [value, *(float(f"{tolerance:.2g}") for tolerance in tolerances)]


def digest(truth, others, p, indices, later):
    """Digest of the float64 tensor, with tolerances from its distance to the float32 ones."""
    import torch

    truth = truth.flatten()
    count = truth.numel()
    projection = uniform(PROJECTION_STREAM + (p or 0), count) - 0.5
    errors = [other.double().flatten() - truth for other in others]
    # Two sums may be close by luck; the size of the error is not a matter of luck.
    size = max(torch.linalg.vector_norm(error).item() for error in errors)
    summed = max(abs(error.sum().item()) for error in errors)
    # A parameter's elements were chosen as sound; any other tensor is judged by its worst one.
    judged = slice(None) if p is None else indices
    shown = max(error[judged].abs().max().item() for error in errors)
    l2 = torch.linalg.vector_norm(truth).item()
    lost = 2.0**-53 * math.sqrt(count) * truth.abs().sum().item()
    lost_l2 = 2.0**-53 * math.sqrt(count) * l2
    dot = torch.dot(truth, projection).item()
    dotted = max(abs(torch.dot(error, projection).item()) for error in errors)
    worst = max(shown, size / math.sqrt(count))
    return {
        "sum": with_tolerances(truth.sum().item(), max(summed, size), later, lost),
        "l2": with_tolerances(l2, size, later, lost_l2),
        "dot": with_tolerances(dot, max(dotted, size * math.sqrt(1.0 / 12.0)), later, lost),
        "elements": [
            [i, *with_tolerances(truth[i].item(), worst, later, 2.0**-53)] for i in indices
        ],
    }


def recorded_values(truth, others):
    def digests(kind, later, parameters):
        result = {}
        for p, (name, tensor) in enumerate(truth[kind].items()):
            seen = [run[kind][name] for run in others]
            indices = range(SHOWN_ELEMENTS)
            if parameters:
                gradients = (truth[g][name] for g in ("gradients", "later_gradients"))
                indices = sound_elements(*gradients)
            result[name] = digest(tensor, seen, p if parameters else None, list(indices), later)
        return result

    # A loss may agree by luck: none is trusted further than the logits behind it.
    logits = [run["logits"] for run in others]
    errors = [seen.double() - truth["logits"] for seen in logits]
    scatter = max(error.square().mean().sqrt().item() for error in errors)
    losses = []
    for step, loss in enumerate(truth["losses"]):
        distance = max(scatter, *(abs(run["losses"][step] - loss) for run in others))
        losses.append(with_tolerances(loss, distance, step > 0))
    shown = [j * CLASSES + k for j in range(RECORD_BATCH) for k in range(SHOWN_LOGITS)]
    return {
        "losses": losses,
        "logits": digest(truth["logits"], logits, None, shown, False),
        "gradients": digests("gradients", later=False, parameters=True),
        "weights": digests("weights", later=True, parameters=True),
        "moved": digests("moved", later=True, parameters=True),
        "batch_norm": digests("batch_norm", later=True, parameters=False),
    }


def one_digest_a_line(value, depth=0):
    """JSON short enough to read, and to compare line by line."""
    if isinstance(value, dict) and "l2" not in value and "shape" not in value:
        ends = "{}"
        inner = [f"{json.dumps(k)}: {one_digest_a_line(v, depth + 1)}" for k, v in value.items()]
    elif isinstance(value, list) and isinstance(value[0], dict):
        ends = "[]"
        inner = [one_digest_a_line(v, depth + 1) for v in value]
    else:
        return json.dumps(value, allow_nan=False)
    indent = "\n" + " " * depth
    return ends[0] + indent + " " + ("," + indent + " ").join(inner) + indent + ends[1]


def record(path):
    import torch
    import torchvision

    resnet18_class()
    torch.set_num_threads(1)
    distance, stream = calm_stream()
    truth = run_recorded(torch.float64, stream)
    others = [run_recorded(torch.float32, stream, *how) for how in FLOAT32_RUNS]
    parameters = []
    for name, weights in truth["weights"].items():
        shape = list(weights.shape)
        offset, scale = formula_of(name, shape)
        parameters.append({"name": name, "shape": shape, "offset": offset, "scale": scale})
    count = sum(weights.numel() for weights in truth["weights"].values())
    recorded = {
        "what": "torchvision's ResNet-18: values that another implementation must reproduce",
        "made_by": "scripts/reference.py --record",
        "explanation": EXPLANATION,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "classes": CLASSES,
        "batch": RECORD_BATCH,
        "image": RECORD_IMAGE,
        "image_scale": IMAGE_SCALE,
        "image_stream": stream,
        "projection_stream": PROJECTION_STREAM,
        "kink_distance": float(f"{distance:.3g}"),
        "labels": [labels_of(step) for step in range(RECORD_STEPS)],
        "parameter_count": count,
        "parameters": parameters,
        **recorded_values(truth, others),
    }
    write_whole(path, one_digest_a_line(recorded) + "\n")
    print(
        f"{path}: {count} parameters, losses {', '.join(f'{x:.6f}' for x in truth['losses'])}, "
        f"kinks at least {distance:.2g} away"
    )
    return 0
