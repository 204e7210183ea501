"""Pieces of the Python script that `emit.py` writes. Text only; fields in braces are filled by `repr`."""

from __future__ import annotations

# As the measuring worker does it: the values depend on the seed and on the input's name alone.
RANDOM = """
SEED = {seed!r}


def random(name):
    return np.random.default_rng([SEED, zlib.crc32(name.encode())])
"""

BFLOAT16 = """
def bfloat16(array):  # the upper half of a float32
    bits = (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits.reshape(array.shape), 16)
"""

NPZ = """
FEEDS = {path!r}
MEAN, STD = {mean!r}, {std!r}  # of uint8 images in a float input; empty: only scaled to [0, 1]

with np.load(FEEDS, allow_pickle=False) as archive:
    stored = {{name: archive[name] for name in archive.files}}


def from_file(name, dtype, shape):
    only = next(iter(stored.values())) if len(stored) == 1 else stored.get("test_images")
    array = stored.get(name, only)
    if array.dtype == np.uint8 and np.issubdtype(dtype, np.floating) and len(shape) == 4:
        if array.ndim == 3:
            array = array[:, None] if shape[1] == 1 else array[..., None]
        elif list(array.shape[1:]) != shape[1:]:
            array = np.moveaxis(array, 3, 1)
        axis = 1 if shape[1] in (1, 3, 4) else 3
        channels = [-1 if one == axis else 1 for one in range(4)]
        array = array.astype(np.float32) / np.float32(255)
        if MEAN:
            array = array - np.reshape(MEAN, channels).astype(np.float32)
        if STD:
            array = array / np.reshape(STD, channels).astype(np.float32)
    array = array[tuple(slice(size) for size in shape)]  # the first rows
    return np.ascontiguousarray(array.astype(dtype)).reshape(shape)

"""

IMAGES = """
FEEDS = {path!r}
MEAN, STD = {mean!r}, {std!r}  # empty: ImageNet's for three channels, nothing for others
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


def from_file(name, dtype, shape):
    axis = 1 if shape[1] in (1, 3, 4) else 3
    height, width = shape[2:] if axis == 1 else shape[1:3]
    channels = shape[axis]
    place = Path(FEEDS)
    files = [place] if place.is_file() else sorted(p for p in place.glob("*") if p.suffix.lower() in SUFFIXES)
    pixels = []
    for file in files[: shape[0]]:
        with Image.open(file) as image:
            upright = ImageOps.exif_transpose(image).convert({{1: "L", 3: "RGB", 4: "RGBA"}}[channels])
            resized = upright.resize((width, height), Image.Resampling.BILINEAR)
        pixels.append(np.asarray(resized, np.uint8).reshape(height, width, channels))
    array = np.stack(pixels)
    array = np.moveaxis(array, 3, 1) if axis == 1 else array
    if dtype != "uint8":
        spread = [-1 if one == axis else 1 for one in range(4)]
        mean = MEAN or ([0.485, 0.456, 0.406] if channels == 3 else [0.0] * channels)
        std = STD or ([0.229, 0.224, 0.225] if channels == 3 else [1.0] * channels)
        array = array.astype(np.float32) / np.float32(255)
        array = array - np.reshape(mean, spread).astype(np.float32)
        array = array / np.reshape(std, spread).astype(np.float32)
    return np.ascontiguousarray(array.astype(dtype)).reshape(shape)

"""

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
