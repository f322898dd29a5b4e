// Runs an operator's library on a batch, in memory that reveals invalid accesses.
#pragma once

#include <stdint.h>

#include <string>
#include <vector>

#include "../../include/millrace/description.h"
#include "../check.hpp"

// The result of one record.
struct Answer {
    uint8_t code = MILLRACE_DONE;
    std::string record;               // the fixed part
    std::vector<std::string> strings; // the byte strings
};

// An operator's library for the CPU.
class Library {
public:
    explicit Library(const char *path);

    const millrace_description &description() const { return *description_; }
    const millrace_field &field(uint32_t i) const;

    // Computes a batch. A read outside the batch ends the program. In every other call, the batch begins after an inaccessible
    // page. In the remaining calls, it ends before such a page. Results, statuses and strings are `noise` at first. The bytes
    // around them are `noise` too and must not change. The same is true of the bytes around the scratch memory. `tables` contains
    // the tables, each padded to a multiple of 16.
    std::vector<Answer> run(const Rows &rows, const std::string &block, uint32_t stride, uint8_t noise, bool split,
                            const std::string &tables = "") const;

private:
    void run_passes(const millrace_batch &batch, const std::string &block, bool split) const;

    std::string path_;
    void *library_;
    const millrace_description *description_;
    void (*run_)(const millrace_batch *, const void *, uint32_t first, uint32_t end);
};

// Builds the fixed part of a record: numbers in order, each aligned to its size.
class Packer {
public:
    template <class T>
    Packer &add(T value) {
        bytes_.resize((bytes_.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T));
        bytes_.append(reinterpret_cast<const char *>(&value), sizeof value);
        if (largest_ < sizeof(T)) largest_ = sizeof(T);
        return *this;
    }
    std::string padded() const {
        std::string all = bytes_;
        all.resize((all.size() + largest_ - 1) / largest_ * largest_);
        return all;
    }
    std::string bytes() const { return bytes_; }

private:
    std::string bytes_;
    size_t largest_ = 1;
};
