"""MinHash signatures by the definition of NeMo Curator and cuDF, with numpy on a CPU and with CuPy on a GPU.

docs/results.md has the definition. numpy itself draws the coefficients, as in Curator. This program shares no code with Millrace's
implementations: the kernels below are deliberately simple. One thread hashes the shingle that starts at its byte, and one thread
computes one entry of a signature.
"""
import numpy


def coefficients(hashes, seed):
    """Returns the factors and the summands of a signature, two arrays of uint32."""
    random = numpy.random.RandomState(seed)
    end = (1 << 31) - 1
    pairs = [(random.randint(1, end, dtype=numpy.uint32), random.randint(0, end, dtype=numpy.uint32)) for _ in range(hashes)]
    return tuple(numpy.array(column, dtype=numpy.uint32) for column in zip(*pairs))


class OnCPU:
    """Computes signatures with numpy."""

    def __init__(self, k, hashes, seed):
        self.k, (self.factors, self.summands) = k, coefficients(hashes, seed)

    def sign(self, data, offsets):
        """Returns an array with a row for each document. Document i is data[offsets[i]:offsets[i + 1]]; both are arrays."""
        starts, ends, per_document = self.shingles(data, offsets)
        hashes = numpy.maximum(murmur3(data, starts, ends, self.factors[0]), numpy.uint32(1))
        result = numpy.zeros((len(offsets) - 1, len(self.factors)), dtype=numpy.uint32)
        filled = numpy.flatnonzero(per_document)
        if len(filled):
            firsts = numpy.concatenate(([0], numpy.cumsum(per_document[filled])[:-1]))
            for i, (a, b) in enumerate(zip(self.factors, self.summands)):
                result[filled, i] = numpy.minimum.reduceat(hashes * a + b, firsts)
        return result

    def shingles(self, data, offsets):
        """Returns the first byte and the end of each shingle, and the number of shingles of each document."""
        offsets = offsets.astype(numpy.int64)
        begins = (data & 0xC0) != 0x80
        begins[offsets[:-1][offsets[:-1] < offsets[1:]]] = True
        characters = numpy.flatnonzero(begins)
        first = numpy.searchsorted(characters, offsets)  # the first character of each document
        length = numpy.diff(first)
        per_document = numpy.where(length > 0, numpy.maximum(length - self.k + 1, 1), 0)
        document = numpy.repeat(numpy.arange(len(length)), per_document)
        rank = numpy.arange(len(document)) - numpy.repeat(numpy.cumsum(per_document) - per_document, per_document)
        begin = first[document] + rank
        end = numpy.minimum(begin + self.k, first[document + 1])
        positions = numpy.append(characters, len(data))
        return positions[begin], positions[end], per_document


def murmur3(data, starts, ends, seed):
    """Returns MurmurHash3_x86_32 of each data[starts[i]:ends[i]]."""
    u32 = numpy.uint32

    def rotated(x, by):
        return x << u32(by) | x >> u32(32 - by)

    def mixed(k):
        return rotated(k * u32(0xCC9E2D51), 15) * u32(0x1B873593)

    padded = numpy.concatenate((data, numpy.zeros(4, numpy.uint8))).astype(u32)
    words = padded[:-3] | padded[1:-2] << u32(8) | padded[2:-1] << u32(16) | padded[3:] << u32(24)
    sizes = ends - starts
    hashes = numpy.full(len(starts), seed, u32)
    for at in range(0, int(sizes.max(initial=0)) // 4 * 4, 4):
        whole = numpy.flatnonzero(sizes >= at + 4)
        h = rotated(hashes[whole] ^ mixed(words[starts[whole] + at]), 13)
        hashes[whole] = h * u32(5) + u32(0xE6546B64)
    tails = sizes & 3
    tail = words[starts + sizes - tails] & ((u32(1) << (u32(8) * tails.astype(u32))) - u32(1))
    hashes ^= mixed(tail)  # mixed(0) is 0
    hashes ^= sizes.astype(u32)
    hashes = (hashes ^ hashes >> u32(16)) * u32(0x85EBCA6B)
    hashes = (hashes ^ hashes >> u32(13)) * u32(0xC2B2AE35)
    return hashes ^ hashes >> u32(16)


KERNELS = r"""
typedef unsigned int u32;

__device__ u32 rotated(u32 x, int by) { return x << by | x >> (32 - by); }

__device__ u32 mixed(u32 k) { return rotated(k * 0xCC9E2D51u, 15) * 0x1B873593u; }

__device__ u32 murmur3(const unsigned char *text, u32 size, u32 h) {
    for (u32 i = 0; i + 4 <= size; i += 4) {
        u32 k = text[i] | text[i + 1] << 8 | text[i + 2] << 16 | (u32)text[i + 3] << 24;
        h = rotated(h ^ mixed(k), 13) * 5 + 0xE6546B64u;
    }
    u32 tail = 0;
    for (u32 i = size & ~3u; i < size; i++) tail |= (u32)text[i] << 8 * (i & 3);
    h ^= mixed(tail);
    h ^= size;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    return h ^ h >> 16;
}

// Writes the hash of the shingle that starts at each byte of document blockIdx.x, or 0 if none starts there.
extern "C" __global__ void hash_shingles(const unsigned char *data, const u32 *offsets, u32 k, u32 seed, u32 *hashes) {
    u32 low = offsets[blockIdx.x], high = offsets[blockIdx.x + 1];
    for (u32 start = low + threadIdx.x; start < high; start += blockDim.x) {
        hashes[start] = 0;
        if (start > low && (data[start] & 0xC0) == 0x80) continue; // in the middle of a character
        u32 end = start, characters = 0;
        while (characters < k && end < high) {
            do end++; while (end < high && (data[end] & 0xC0) == 0x80);
            characters++;
        }
        if (characters < k && start > low) continue; // only a document of fewer than k characters has a shorter shingle
        u32 h = murmur3(data + start, end - start, seed);
        hashes[start] = h > 1 ? h : 1;
    }
}

// Writes the signature of document blockIdx.x: one entry per thread.
extern "C" __global__ void sign(const u32 *offsets, const u32 *hashes, u32 entries, const u32 *factors, const u32 *summands, u32 *result) {
    u32 low = offsets[blockIdx.x], high = offsets[blockIdx.x + 1];
    for (u32 entry = threadIdx.x; entry < entries; entry += blockDim.x) {
        u32 a = factors[entry], b = summands[entry], least = low < high ? 0xFFFFFFFFu : 0;
        for (u32 i = low; i < high; i++)
            if (hashes[i] != 0 && hashes[i] * a + b < least) least = hashes[i] * a + b;
        result[(unsigned long long)blockIdx.x * entries + entry] = least;
    }
}
"""


class OnGPU:
    """Computes signatures with CuPy, like OnCPU."""

    def __init__(self, k, hashes, seed):
        import cupy
        self.cupy, self.k, pair = cupy, k, coefficients(hashes, seed)
        self.seed = pair[0][0]
        self.factors, self.summands = map(cupy.asarray, pair)
        module = cupy.RawModule(code=KERNELS)
        self.hash_shingles, self.sign_all = module.get_function("hash_shingles"), module.get_function("sign")

    def sign(self, data, offsets):
        cupy, u32, documents, entries = self.cupy, numpy.uint32, len(offsets) - 1, len(self.factors)
        result = cupy.empty((documents, entries), dtype=u32)
        if documents:
            text, offsets = cupy.asarray(data), cupy.asarray(offsets)
            hashes = cupy.empty(max(len(data), 1), dtype=u32)
            self.hash_shingles((documents,), (128,), (text, offsets, u32(self.k), self.seed, hashes))
            self.sign_all((documents,), (128,), (offsets, hashes, u32(entries), self.factors, self.summands, result))
        return cupy.asnumpy(result)
