// keywords.cu: how often the words of a file occur in a record, and which word comes first. The work is divided by the
// bytes of the whole batch. So one long record among short ones costs no more than the same bytes in equal records.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(keywords, 1)
MILLRACE_TABLE(words, 262144)           // a word or a phrase per line
MILLRACE_PARAM(uint8_t, whole, 1, 0, 1) // 1: only whole words count, "mill" isn't in "millrace"
MILLRACE_PARAM(uint8_t, fold, 1, 0, 1)  // 1: upper and lower case of ASCII letters are the same
MILLRACE_RESULT(uint32_t, matches)      // number of occurrences of words
MILLRACE_RESULT(uint32_t, first)        // line of the word that comes first, counted from 1; 0 without a match

constexpr uint32_t kBuckets = 65536, kMostText = 262144;
constexpr uint32_t kChunk = 4096;  // bytes of the file that a block indexes
constexpr uint32_t kPiece = 16;    // bytes of the batch that a lane processes at a time
constexpr uint32_t kThreads = 256, kTile = 4 * kThreads * kPiece; // bytes of the batch for a block

MILLRACE_SCRATCH(uint32_t, bucket, kBuckets, 0, 0)        // indexed by the hash of a word's first bytes: a word, or 0
MILLRACE_SCRATCH(uint32_t, next, kMostText / 2, 0, 0)     // indexed by half a word's position: next word with its hash
MILLRACE_SCRATCH(uint32_t, line, kMostText / 2, 0, 0)     // indexed by half a word's position: the word's line
MILLRACE_SCRATCH(uint32_t, filter, kBuckets / 32, 0, 0)   // a bit for each bucket with a word
MILLRACE_SCRATCH(uint32_t, sizes, 1, 0, 0)                // bit n: some word has n bytes of hash, 1 to 4
MILLRACE_SCRATCH(uint32_t, matches, 0, 1, 0)
MILLRACE_SCRATCH(uint64_t, first, 0, 1, 0)                // complement of position in the record and line

MILLRACE_DEVICE bool in_word(uint8_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c >= 128;
}

// Returns four bytes, each in lower case if `fold` is set.
MILLRACE_DEVICE uint32_t folded(uint32_t bytes, bool fold) {
    uint32_t low = bytes & 0x7f7f7f7f, from_a = low + 0x3f3f3f3f, after_z = low + 0x25252525; // bit 7 of each byte
    return fold ? bytes | ((from_a ^ after_z) & ~bytes & 0x80808080) >> 2 : bytes;
}

// Returns the bucket of the lowest `size` bytes, 1 to 4.
MILLRACE_DEVICE uint32_t bucket_of(uint32_t bytes, uint32_t size) {
    return ((bytes << (32 - 8 * size)) * 2654435761u + size * 0x9e3779b9u) >> 16;
}

// Returns whether the line that contains the file's byte i ends before it: at LF, at CR and LF, or at the end of the
// file.
MILLRACE_DEVICE bool ended(const millrace::Table &text, uint32_t i) {
    if (i < text.size() && text[i] == '\r') i++;
    return i >= text.size() || text[i] == '\n';
}

// Returns the number of LF among four bytes.
MILLRACE_DEVICE uint32_t line_feeds(uint32_t bytes) {
    uint32_t other = bytes ^ 0x0a0a0a0a;
    return __popc(~(((other & 0x7f7f7f7f) + 0x7f7f7f7f) | other | 0x7f7f7f7f));
}

// Adds the words that begin in one chunk of the file.
MILLRACE_PASS(index, kThreads, millrace::blocks(kMostText / kChunk), batch, params, scratch, team) {
    const millrace::Table &text = params.words;
    uint32_t from = batch.block() * kChunk, end = min(from + kChunk, text.size()), lines = 0;
    if (from >= end) return;
    for (uint32_t i = 4 * team.lane(); i < from; i += 4 * team.lanes()) lines += line_feeds(text.load<uint32_t>(i));
    lines = team.sum(lines) + 1; // the line of the chunk's first byte
    for (uint32_t i = from; i < end; i += team.lanes()) { // all lanes have the same number of iterations
        uint32_t at = i + team.lane();
        bool inside = at < end;
        uint32_t breaks = inside && text[at] == '\n';
        uint32_t line = lines + team.before(breaks), size = 0, bytes = 0;
        lines += team.sum(breaks);
        if (!inside || (at > 0 && text[at - 1] != '\n')) continue;
        for (; size < 4 && !ended(text, at + size); size++) bytes |= folded(text[at + size], params.fold) << 8 * size;
        if (size == 0) continue; // an empty line
        uint32_t bucket = bucket_of(bytes, size);
        scratch.line[at / 2] = line;
        scratch.next[at / 2] = scratch.bucket.exchange(bucket, at + 1);
        scratch.filter.set_bits(bucket / 32, 1u << bucket % 32);
        scratch.sizes.set_bits(0, 1u << size);
    }
}

// Returns whether the word at position `word` of the file is at position `at` of the batch, before the end of the record.
MILLRACE_DEVICE bool is_word(const millrace::Batch &batch, const millrace::Table &text, uint32_t word, uint32_t at, uint32_t end,
                             bool fold, bool whole) {
    for (; !ended(text, word); word++, at++) {
        if (at >= end || folded(text[word], fold) != folded(batch[at], fold)) return false;
    }
    return !whole || at >= end || !in_word(batch[at]) || !in_word(text[word - 1]);
}

// Returns four bytes of the batch, with zeros after its end.
MILLRACE_DEVICE uint32_t four(const millrace::Batch &batch, uint32_t at) {
    if (at + 4 <= batch.size()) return batch.load<uint32_t>(at);
    uint32_t bytes = 0;
    for (uint32_t i = 0; at + i < batch.size(); i++) bytes |= static_cast<uint32_t>(batch[at + i]) << 8 * i;
    return bytes;
}

// Finds the words that begin in one tile of the batch, piece by piece.
MILLRACE_PASS(find, kThreads, millrace::per_bytes(kTile), batch, params, scratch, team) {
    MILLRACE_SHARED(uint32_t, filter, kBuckets / 32);
    for (uint32_t i = team.lane(); i < kBuckets / 32; i += team.lanes()) filter[i] = scratch.filter[i];
    team.sync();
    const uint32_t sizes = scratch.sizes[0], tile = batch.block() * kTile, tile_end = min(tile + kTile, batch.size());
    const uint32_t first_row = batch.row_of(tile), end_row = batch.row_of(tile_end - 1) + 1;
    for (uint32_t piece = tile + team.lane() * kPiece; piece < tile_end; piece += team.lanes() * kPiece) {
        const uint32_t piece_end = min(piece + kPiece, tile_end);
        uint32_t row = 0, start = 0, end = 0, found = 0; // the last record with a candidate, and its matches in this piece
        uint32_t here = folded(four(batch, piece), params.fold), after = 0;
        uint64_t first = 0;
        for (uint32_t at = piece; at < piece_end; at++) {
            uint32_t shift = 8 * ((at - piece) % 4);
            if (shift == 0 && at > piece) here = after;
            if (shift == 0) after = folded(four(batch, at + 4), params.fold);
            uint32_t bytes = __funnelshift_r(here, after, shift);
            for (uint32_t left = sizes; left != 0; left &= left - 1) { // most files have one or two sizes
                uint32_t bucket = bucket_of(bytes, __ffs(left) - 1);
                if ((filter[bucket / 32] >> bucket % 32 & 1) == 0) continue;
                if (at >= end) {
                    if (found > 0) scratch.matches.add(row, found), scratch.first.max(row, first);
                    row = batch.row_of(at, first_row, end_row), start = batch.start(row), end = batch.start(row + 1);
                    found = 0, first = 0;
                }
                if (params.whole && at > start && in_word(batch[at - 1]) && in_word(batch[at])) break;
                for (uint32_t word = scratch.bucket[bucket]; word != 0; word = scratch.next[(word - 1) / 2]) {
                    if (!is_word(batch, params.words, word - 1, at, end, params.fold, params.whole)) continue;
                    found++;
                    first = max(first, ~(static_cast<uint64_t>(at - start) << 32 | scratch.line[(word - 1) / 2]));
                }
            }
        }
        if (found > 0) scratch.matches.add(row, found), scratch.first.max(row, first);
    }
}

MILLRACE_RECORD(record, params, result) {
    result.matches = record.scratch.matches[record.row()];
    if (result.matches > 0) result.first = static_cast<uint32_t>(~record.scratch.first[record.row()]);
}
