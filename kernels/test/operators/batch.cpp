#include "batch.hpp"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *symbol(void *library, const char *path, const char *name) {
    void *found = dlsym(library, name);
    if (found == nullptr) {
        fprintf(stderr, "%s has no %s\n", path, name);
        exit(1);
    }
    return found;
}

Library::Library(const char *path) : path_(path) {
    void *library = library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    description_ = static_cast<const millrace_description *>(symbol(library, path, "millrace_operator_description"));
    run_ = reinterpret_cast<decltype(run_)>(symbol(library, path, "millrace_operator_run"));
}

const millrace_field &Library::field(uint32_t i) const {
    const char *at = reinterpret_cast<const char *>(description_) + description_->fields_at;
    return *reinterpret_cast<const millrace_field *>(at + static_cast<size_t>(i) * description_->field_size);
}

namespace {

// Readable memory between two pages that can't be read. Its contents begin at the end of the first page, or end at the
// start of the last page.
class Guarded {
public:
    Guarded(const std::string &contents, bool at_start) {
        size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), pages = contents.size() / page + 3;
        length_ = pages * page;
        start_ = static_cast<char *>(mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        char *end = start_ + length_ - page;
        bytes = at_start ? start_ + page : end - contents.size();
        memcpy(bytes, contents.data(), contents.size());
        mprotect(start_, page, PROT_NONE);
        mprotect(end, page, PROT_NONE);
    }
    ~Guarded() { munmap(start_, length_); }
    char *bytes;

private:
    char *start_;
    size_t length_;
};

// Memory for results. The memory and its surroundings are initialized with noise.
class Noisy {
public:
    Noisy(uint64_t bytes, uint8_t noise) : bytes_(bytes), noise_(noise), memory_(bytes + 2 * kMargin + 256, static_cast<char>(noise)) {
        uint64_t address = reinterpret_cast<uint64_t>(memory_.data()) + kMargin;
        start_ = (address + 255) / 256 * 256 - reinterpret_cast<uint64_t>(memory_.data());
    }
    uint64_t address() const { return reinterpret_cast<uint64_t>(memory_.data()) + start_; }
    std::string part(uint64_t at, uint64_t bytes) const { return memory_.substr(start_ + at, bytes); }
    void check_around(const char *what) const {
        for (uint64_t i = 0; i < memory_.size(); i++) {
            if (i >= start_ && i < start_ + bytes_) continue;
            CHECK_EQUAL(static_cast<uint8_t>(memory_[i]), noise_, "a byte around the %s, at %lld", what,
                        static_cast<long long>(i) - static_cast<long long>(start_));
        }
    }

private:
    static constexpr uint64_t kMargin = 4096;
    uint64_t bytes_;
    uint8_t noise_;
    std::string memory_;
    uint64_t start_;
};

uint32_t read_length(const std::string &record, uint32_t at) {
    uint32_t length;
    memcpy(&length, record.data() + at, sizeof length);
    return length;
}

} // namespace

// Returns the positions of the lengths of byte strings in a record, for each field in order. The position is ~0 for
// a field that isn't a byte string.
static std::vector<uint32_t> length_positions(const Library &library, const std::string &block) {
    static const uint32_t sizes[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 4};
    std::vector<uint32_t> positions;
    const char *start = reinterpret_cast<const char *>(&library.description());
    uint32_t at = 0;
    for (uint32_t i = 0; i < library.description().fields; i++) {
        const millrace_field &f = library.field(i);
        uint32_t size = sizes[f.type], count = f.count;
        if (f.count_parameter != 0) {
            millrace_parameter p;
            memcpy(&p, start + library.description().parameters_at + (f.count_parameter - 1) * sizeof p, sizeof p);
            count = 0;
            memcpy(&count, block.data() + p.at, sizes[p.type]);
        }
        at = (at + size - 1) / size * size;
        positions.push_back(f.type == MILLRACE_BYTES ? at : ~0u);
        at += size * count;
    }
    return positions;
}

// Runs the passes in order. With `split`, the last blocks of each pass run first. Libraries for lanes have a separate function
// for this.
void Library::run_passes(const millrace_batch &batch, const std::string &block, bool split) const {
    using Pass = void (*)(const millrace_batch *, const void *, uint32_t blocks, uint32_t first, uint32_t end);
    using InLanes = void (*)(void *, const millrace_batch *, const void *, uint32_t blocks, uint32_t threads);
    InLanes in_lanes = reinterpret_cast<InLanes>(dlsym(library_, "millrace_run_pass_in_lanes"));
    for (uint32_t i = 0; i < description_->passes; i++) {
        const char *at = reinterpret_cast<const char *>(description_) + description_->passes_at + i * description_->pass_size;
        const millrace_pass &p = *reinterpret_cast<const millrace_pass *>(at);
        uint64_t items = p.constant + static_cast<uint64_t>(p.per_row) * batch.rows + static_cast<uint64_t>(p.per_byte) * batch.bytes;
        uint32_t blocks = static_cast<uint32_t>((items + p.share - 1) / p.share), middle = split ? blocks / 3 : 0;
        void *code = symbol(library_, path_.c_str(), (std::string("millrace_operator_pass_") + p.name).c_str());
        if (blocks == 0) continue;
        if (in_lanes != nullptr) {
            in_lanes(code, &batch, block.data(), blocks, p.threads);
            continue;
        }
        Pass pass = reinterpret_cast<Pass>(code);
        pass(&batch, block.data(), blocks, middle, blocks);
        pass(&batch, block.data(), blocks, 0, middle);
    }
}

std::vector<Answer> Library::run(const Rows &rows, const std::string &block, uint32_t stride, uint8_t noise, bool split,
                                 const std::string &tables) const {
    std::string bytes;
    std::vector<uint32_t> offsets = {0};
    for (const std::string &row : rows) bytes += row, offsets.push_back(static_cast<uint32_t>(bytes.size()));
    uint64_t slots = 0;
    for (uint32_t i = 0; i < description_->fields; i++) {
        slots += static_cast<uint64_t>(field(i).most_bytes) * rows.size() + static_cast<uint64_t>(field(i).most_per_byte) * bytes.size();
    }
    static bool at_start = false;
    at_start = !at_start;
    Guarded data(bytes, at_start);
    uint64_t scratch_bytes = description_->scratch_bytes + description_->scratch_per_row * static_cast<uint64_t>(rows.size()) +
                             description_->scratch_per_byte * static_cast<uint64_t>(bytes.size());
    Guarded table_data(tables, at_start);
    Noisy scratch(scratch_bytes, noise);
    memset(reinterpret_cast<void *>(scratch.address()), 0, scratch_bytes);
    Noisy result(rows.size() * stride, noise), status(rows.size(), noise), strings(slots, noise);
    millrace_batch batch = {};
    batch.size = sizeof batch, batch.rows = static_cast<uint32_t>(rows.size()), batch.stride = stride;
    batch.bytes = static_cast<uint32_t>(bytes.size());
    batch.data = reinterpret_cast<uint64_t>(data.bytes), batch.offsets = reinterpret_cast<uint64_t>(offsets.data());
    batch.result = result.address(), batch.status = status.address(), batch.strings = strings.address();
    batch.scratch = scratch.address(), batch.tables = reinterpret_cast<uint64_t>(table_data.bytes);
    if (batch.rows > 0) run_passes(batch, block, split);
    uint32_t middle = split ? batch.rows / 3 : 0;
    if (middle > 0) run_(&batch, block.data(), middle, batch.rows); // runs the later part first
    run_(&batch, block.data(), 0, middle > 0 ? middle : batch.rows);
    result.check_around("results"), status.check_around("statuses"), strings.check_around("strings");
    scratch.check_around("scratch memory");

    std::vector<Answer> answers;
    std::vector<uint32_t> lengths = length_positions(*this, block);
    for (uint32_t r = 0; r < batch.rows; r++) {
        Answer a;
        a.code = static_cast<uint8_t>(status.part(r, 1)[0]);
        a.record = result.part(static_cast<uint64_t>(r) * stride, stride);
        uint64_t at = 0;
        for (uint32_t i = 0; i < description_->fields; i++) {
            const millrace_field &f = field(i);
            if (f.type != MILLRACE_BYTES) continue;
            uint64_t slot = at + static_cast<uint64_t>(f.most_bytes) * r + static_cast<uint64_t>(f.most_per_byte) * offsets[r];
            a.strings.push_back(strings.part(slot, read_length(a.record, lengths[i])));
            at += static_cast<uint64_t>(f.most_bytes) * batch.rows + static_cast<uint64_t>(f.most_per_byte) * batch.bytes;
        }
        answers.push_back(a);
    }
    return answers;
}
