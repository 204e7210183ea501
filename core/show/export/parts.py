"""Templates of the Python script that `export` writes. Text only; `repr` fills the fields in braces."""

from __future__ import annotations

BFLOAT16 = """
def bfloat16(array):  # the upper half of a float32
    bits = (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits.reshape(array.shape), 16)
"""

LIBRARIES = """
# Native libraries are not part of this script. They are loaded from this folder after a SHA-256 check.
LIBRARIES = Path(os.environ.get("ORTUNE_ALLOW_LIBRARIES", "."))


def library(name, sha256):
    path = (LIBRARIES / name).resolve()
    if sha256 and hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise RuntimeError(f"{path} is not the library that was measured.")
    return str(path)
"""

PLUGGED = """
devices = ort.get_ep_devices()
for name, own in providers:
    plugged = [one for one in devices if one.ep_name == name]
    if plugged and name not in ort.get_all_providers():
        options.add_provider_for_devices(plugged[:1], own)
    elif name != "CPUExecutionProvider":  # which comes last in every session
        options.add_provider(name, own)
"""

NPZ = """
FEEDS = {path!r}
MEAN, STD = {mean!r}, {std!r}  # of uint8 images in a float input; empty: only scaled to [0, 1]

with np.load(FEEDS, allow_pickle=False) as archive:
    stored = dict(archive)


def from_file(name, dtype, shape):
    only = next(iter(stored.values())) if len(stored) == 1 else stored.get("test_images")
    array = stored.get(name, only)
    if array.dtype == np.uint8 and np.issubdtype(dtype, np.floating) and len(shape) == 4:
        if array.ndim == 3:
            array = np.expand_dims(array, 1 if shape[1] == 1 else 3)
        elif list(array.shape[1:]) != shape[1:]:
            array = np.moveaxis(array, 3, 1)
        spread = (-1, 1, 1) if shape[1] in (1, 3, 4) else (-1,)
        mean, std = (np.reshape(one, spread).astype(np.float32) for one in (MEAN or [0], STD or [1]))
        array = (array / np.float32(255) - mean) / std
    array = array[tuple(slice(size) for size in shape)]  # the first rows
    return np.ascontiguousarray(array.astype(dtype)).reshape(shape)

"""

IMAGES = """
FEEDS = Path({path!r})
SUFFIXES = {suffixes!r}

files = [FEEDS] if FEEDS.is_file() else sorted(p for p in FEEDS.glob("*") if p.suffix.lower() in SUFFIXES)
pixels = []
for file in files[:{rows!r}]:
    with Image.open(file) as image:
        upright = ImageOps.exif_transpose(image).convert({mode!r})
        resized = upright.resize({size!r}, Image.Resampling.BILINEAR)
    pixels.append(np.asarray(resized, np.uint8).reshape(resized.height, resized.width, {channels!r}))
images = np.stack(pixels)
"""

NORMALIZED = """\
images = (images / np.float32(255) - np.float32({mean!r})) / np.float32({std!r})"""

FP16 = """
# The float16 copy, made in memory by ONNX Runtime's own converter.
model = onnx.shape_inference.infer_shapes(onnx.load(MODEL))
readers = {{}}
for node in model.graph.node:
    for name in set(node.input):
        readers.setdefault(name, []).append(node)
for weight in list(model.graph.initializer):  # nodes that stay in float32 get a weight of their own
    users = readers.get(weight.name, [])
    kept = [node for node in users if node.op_type in DEFAULT_OP_BLOCK_LIST]
    if weight.data_type == onnx.TensorProto.FLOAT and 0 < len(kept) < len(users):
        own = model.graph.initializer.add()
        own.CopyFrom(weight)
        own.name += "_float32"
        for node in kept:
            node.input[:] = [own.name if name == weight.name else name for name in node.input]
model = convert_float_to_float16(model, keep_io_types={keep_io_types!r}, disable_shape_infer=True)
seen, nodes = set(), []
for node in model.graph.node:  # a value that two nodes share gets the same Cast twice: keep one
    pair = (node.op_type, tuple(node.input), tuple(node.output))
    if node.op_type != "Cast" or pair not in seen:
        nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
    seen.add(pair)
del model.graph.node[:]
model.graph.node.extend(nodes)
"""

# Bound inputs lie on the device that computes; numpy has no bfloat16, so that input is already an OrtValue.
VALUES = """\
values = {{
    name: array if isinstance(array, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(array, {device})
    for name, array in feeds.items()
}}"""

BOUND_RUN = """\
binding = session.io_binding()
for name, value in values.items():
    binding.bind_ortvalue_input(name, value)
for one in session.get_outputs():
    binding.bind_output(one.name, {device})
session.run_with_iobinding(binding{options})
outputs = binding.{take}()"""
