// Descriptions of loaded operators. They come from files, so the runtime checks everything that it uses.
#include "description.hpp"

#include <string.h>

namespace millrace {

namespace {

// Sizes of the structures in version 1 of the contract. They are the minimum sizes in a description.
constexpr uint32_t kDescriptionBytes = 176, kParameterBytes = 72, kFieldBytes = 64, kPassBytes = 56, kBatchBytes = 72;

// Limits that prevent overflows of sizes.
constexpr uint64_t kMostElements = 1 << 20, kMostStringBytes = 1 << 24, kMostPerByte = 1 << 10;
constexpr uint64_t kMostConstantBlocks = 1 << 16, kFaultBytes = 4;
constexpr uint64_t kMostScratch = 1 << 30, kMostScratchPerRow = 1 << 20, kMostScratchPerByte = 1 << 10;

constexpr uint32_t kTypeBytes[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 4, 8, 1}; // indexed by type; MILLRACE_UINT8 is 1

bool is_number(uint32_t type) { return type >= MILLRACE_UINT8 && type <= MILLRACE_FLOAT64; }
bool is_integer(uint32_t type) { return type >= MILLRACE_UINT8 && type <= MILLRACE_INT64; }
bool is_unsigned(uint32_t type) { return (type >= MILLRACE_UINT8 && type <= MILLRACE_UINT64) || type == MILLRACE_BOOL; }
bool is_signed(uint32_t type) { return type >= MILLRACE_INT8 && type <= MILLRACE_INT64; }

// Returns whether the text ends within its bytes.
template <size_t kBytes>
bool ends(const char (&text)[kBytes]) { return memchr(text, 0, kBytes) != nullptr; }

// Returns an entry. Code of an older contract may have shorter entries, whose missing members are zero.
template <class Entry>
Entry entry(const millrace_description *d, uint32_t at, uint32_t size, uint32_t i) {
    Entry e = {};
    memcpy(&e, reinterpret_cast<const uint8_t *>(d) + at + i * size, size < sizeof e ? size : sizeof e);
    return e;
}

millrace_parameter parameter(const millrace_description *d, uint32_t i) {
    return entry<millrace_parameter>(d, d->parameters_at, d->parameter_size, i);
}

millrace_field field(const millrace_description *d, uint32_t i) {
    return entry<millrace_field>(d, d->fields_at, d->field_size, i);
}

bool entries_fit(const millrace_description *d, uint32_t count, uint32_t size, uint32_t at, uint32_t most, uint32_t least) {
    return count <= most && size >= least && size <= kMostDescription &&
           static_cast<uint64_t>(at) + static_cast<uint64_t>(count) * size <= d->bytes;
}

bool good_threads(uint32_t threads) { return threads > 0 && threads <= 1024 && threads % 32 == 0; }

bool good_form(const millrace_description *d) {
    if (d->form == MILLRACE_LIBRARY) return d->threads == 0 && d->teams == 0;
    if (!good_threads(d->threads) || d->teams == 0) return false;
    switch (d->form) {
    case MILLRACE_THREAD: return d->teams == d->threads;
    case MILLRACE_WARP: return d->teams == d->threads / 32;
    case MILLRACE_BLOCK: return d->teams == 1;
    default: return false;
    }
}

bool good_parameter(const millrace_description *d, const millrace_parameter &p) {
    if (p.type == MILLRACE_FILE && (p.at % 8 != 0 || p.least < 1 || p.least > p.most || p.most > MILLRACE_MOST_TABLE_BYTES)) return false;
    if (p.type == MILLRACE_BOOL && (p.least != 0 || p.most != 1)) return false;
    return ends(p.name) && (is_number(p.type) || p.type == MILLRACE_FILE || p.type == MILLRACE_BOOL) && static_cast<uint64_t>(p.at) + kTypeBytes[p.type] <= d->parameter_bytes;
}

bool good_field(const millrace_description *d, const millrace_field &f) {
    if (!is_number(f.type) && f.type != MILLRACE_BYTES) return false;
    if (f.most_bytes > kMostStringBytes || f.most_per_byte > kMostPerByte || f.count > kMostElements) return false;
    if (f.count_parameter == 0) return f.count > 0;
    if (f.count_parameter > d->parameters) return false;
    uint32_t type = parameter(d, f.count_parameter - 1).type;
    return is_integer(type) || (type == MILLRACE_BOOL && f.array == 0);
}

bool good_pass(const millrace_pass &p) {
    uint64_t divided = static_cast<uint64_t>(p.per_row) + p.per_byte;
    return ends(p.name) && p.name[0] != 0 && good_threads(p.threads) && p.share > 0 && divided <= p.share &&
           p.constant <= kMostConstantBlocks && p.constant + divided > 0;
}

bool good_scratch(const millrace_description *d) {
    if (d->passes == 0) return d->scratch_bytes == 0 && d->scratch_per_row == 0 && d->scratch_per_byte == 0;
    return d->scratch_bytes >= kFaultBytes && d->scratch_bytes <= kMostScratch && d->scratch_per_row <= kMostScratchPerRow &&
           d->scratch_per_byte <= kMostScratchPerByte;
}

// Returns the name of the damaged part of the passes, or nullptr.
const char *damaged_passes(const millrace_description *d) {
    if (!entries_fit(d, d->passes, d->pass_size, d->passes_at, MILLRACE_MOST_PASSES, kPassBytes)) return "the number of passes";
    for (uint32_t i = 0; i < d->passes; i++) {
        if (!good_pass(pass_of(d, i))) return "a pass";
    }
    return good_scratch(d) ? nullptr : "the size of scratch memory";
}

// Returns the name of the damaged part of a description, or nullptr.
const char *damage(const millrace_description *d, uint64_t bytes) {
    if (d->size < kDescriptionBytes || d->bytes < d->size || d->bytes > bytes || d->bytes > kMostDescription) return "its size";
    if (d->batch_size < kBatchBytes || d->batch_size > sizeof(millrace_batch)) return "the size of a batch";
    if (!good_form(d)) return "its form";
    if (d->parameter_bytes > kMostBlock) return "the size of the parameter block";
    if (!entries_fit(d, d->parameters, d->parameter_size, d->parameters_at, MILLRACE_MOST_PARAMETERS, kParameterBytes)) {
        return "the number of parameters";
    }
    for (uint32_t i = 0; i < d->parameters; i++) {
        if (!good_parameter(d, parameter(d, i))) return "a parameter";
    }
    if (!entries_fit(d, d->fields, d->field_size, d->fields_at, MILLRACE_MOST_FIELDS, kFieldBytes) || d->fields == 0) {
        return "the number of result fields";
    }
    for (uint32_t i = 0; i < d->fields; i++) {
        if (!good_field(d, field(d, i))) return "a result field";
    }
    return damaged_passes(d);
}

// Returns the value of a parameter, extended to 64 bits like the description's bounds.
uint64_t value_of(const millrace_parameter &p, const uint8_t *block) {
    uint64_t bits = 0;
    memcpy(&bits, block + p.at, kTypeBytes[p.type]);
    if (p.type == MILLRACE_FLOAT32) {
        float narrow;
        memcpy(&narrow, block + p.at, sizeof narrow);
        double wide = narrow;
        memcpy(&bits, &wide, sizeof bits);
    } else if (is_signed(p.type)) {
        uint32_t unused = 64 - 8 * kTypeBytes[p.type];
        bits = static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused);
    }
    return bits;
}

double as_float(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

bool within_bounds(const millrace_parameter &p, uint64_t value) {
    if (is_unsigned(p.type)) return value >= p.least && value <= p.most;
    if (is_signed(p.type)) {
        return static_cast<int64_t>(value) >= static_cast<int64_t>(p.least) &&
               static_cast<int64_t>(value) <= static_cast<int64_t>(p.most);
    }
    return as_float(value) >= as_float(p.least) && as_float(value) <= as_float(p.most); // false for NaN
}

bool has_tables(const millrace_description *d) {
    for (uint32_t i = 0; i < d->parameters; i++) {
        if (parameter(d, i).type == MILLRACE_FILE) return true;
    }
    return false;
}

// Checks the position and the size of a table in a block of `bytes` bytes, whose tables begin at `start`. *end is the end of the
// previous table. The function sets it to the end of this table.
bool good_table(const millrace_parameter &p, const uint8_t *block, uint64_t start, uint64_t bytes, uint64_t *end) {
    uint32_t place[2];
    memcpy(place, block + p.at, sizeof place);
    uint64_t at = start + (*end - start + kTableAlign - 1) / kTableAlign * kTableAlign;
    if (start + place[0] != at || place[1] < p.least || place[1] > p.most || at + place[1] > bytes) return false;
    *end = at + place[1];
    return true;
}

int32_t refuse_block(const millrace_description *d, size_t bytes, uint64_t needed, millrace_error *error) {
    return fail(error, MILLRACE_INVALID, 0, "operator %s: a parameter block of %zu bytes: it takes %llu", d->name, bytes,
                static_cast<unsigned long long>(needed));
}

int32_t check_block(const millrace_description *d, const uint8_t *block, size_t bytes, millrace_error *error) {
    uint64_t start = tables_start(d), end = start;
    if (bytes < start || (bytes > start && !has_tables(d))) return refuse_block(d, bytes, start, error);
    for (uint32_t i = 0; i < d->parameters; i++) {
        millrace_parameter p = parameter(d, i);
        if (p.type == MILLRACE_FILE) {
            if (good_table(p, block, start, bytes, &end)) continue;
            return fail(error, MILLRACE_INVALID, 0, "operator %s: table %s isn't in the parameter block of %zu bytes, or is too large", d->name,
                        p.name, bytes);
        }
        if (!within_bounds(p, value_of(p, block))) {
            return fail(error, MILLRACE_INVALID, 0, "operator %s: parameter %s is outside its bounds", d->name, p.name);
        }
    }
    return bytes == end ? MILLRACE_OK : refuse_block(d, bytes, end, error);
}

} // namespace

millrace_pass pass_of(const millrace_description *d, uint32_t i) {
    return entry<millrace_pass>(d, d->passes_at, d->pass_size, i);
}

uint64_t tables_start(const millrace_description *d) {
    return has_tables(d) ? (d->parameter_bytes + kTableAlign - 1) / kTableAlign * kTableAlign : d->parameter_bytes;
}

int32_t check_description(const millrace_description *d, uint64_t bytes, millrace_error *error) {
    if (bytes < kDescriptionBytes || memcmp(d->magic, MILLRACE_DESCRIPTION_MAGIC, sizeof d->magic) != 0 || !ends(d->name)) {
        return fail(error, MILLRACE_INVALID, 0,
                    "what the image has as millrace_operator_description is not the description of an operator");
    }
    if (d->contract > MILLRACE_CONTRACT) {
        return fail(error, MILLRACE_INVALID, 0,
                    "operator %s needs version %u of the operator contract and the kernel library has version %u: use a newer "
                    "worker, or compile the operator with the header of this one",
                    d->name, d->contract, MILLRACE_CONTRACT);
    }
    const char *what = damage(d, bytes);
    if (what == nullptr) return MILLRACE_OK;
    return fail(error, MILLRACE_INVALID, 0, "operator %s: its description is damaged: %s", d->name, what);
}

int32_t bind_block(const millrace_description *d, const void *params, size_t bytes, ResultSize *size, millrace_error *error) {
    const uint8_t *block = static_cast<const uint8_t *>(params);
    if (int32_t s = check_block(d, block, bytes, error)) return s;
    uint64_t stride = 0, largest = 1;
    *size = {};
    size->statuses = d->form != MILLRACE_LIBRARY || d->reasons > 0; // host code without reasons computes every record
    for (uint32_t i = 0; i < d->fields; i++) {
        millrace_field f = field(d, i);
        uint64_t element = kTypeBytes[f.type], count = f.count;
        if (f.count_parameter != 0) {
            millrace_parameter p = parameter(d, f.count_parameter - 1);
            count = value_of(p, block);
            if (p.type == MILLRACE_BOOL && count == 0) continue;
        }
        if (count == 0 || count > kMostElements) {
            return fail(error, MILLRACE_INVALID, 0, "operator %s: a result field with %llu elements: 1 to %llu are possible",
                        d->name, static_cast<unsigned long long>(count), static_cast<unsigned long long>(kMostElements));
        }
        stride = (stride + element - 1) / element * element + element * count;
        largest = largest > element ? largest : element;
        size->strings |= f.type == MILLRACE_BYTES;
        size->string_bytes += f.most_bytes, size->string_bytes_per_byte += f.most_per_byte;
    }
    size->stride = static_cast<uint32_t>((stride + largest - 1) / largest * largest);
    return MILLRACE_OK;
}

} // namespace millrace
