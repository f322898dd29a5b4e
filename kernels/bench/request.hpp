// What can be asked, and one request read from a line of text.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <string>
#include <vector>

namespace yardstick {

// The longest line that is read, its end not counted.
constexpr size_t kMostLineBytes = 1000;

// A key that a request takes: a whole number within bounds, or one of some words.
struct Key {
    std::string name;
    uint64_t least, most; // bounds of a number, both allowed
    uint64_t step;        // a number must be a multiple of it
    std::string fallback; // what stands for a key that is not given; empty: it must be given
    std::vector<std::string> words; // if there are any, the value is one of them
};

Key number_key(std::string name, uint64_t least, uint64_t most, std::string fallback = "");
Key word_key(std::string name, std::vector<std::string> words, std::string fallback = "");

// A request's form: its name, its keys, what it measures, and the members of its answer, the last two for people.
struct Form {
    std::string name;
    std::vector<Key> keys;
    std::string about, members;
};

// A request whose keys all have values that are allowed.
class Request {
public:
    const std::string &name() const { return name_; }

    // The value of a number key, or which of its words a word key has, counted from 0. The form must have the key.
    uint64_t operator[](const std::string &key) const { return values_.at(key); }

private:
    friend Request parse(const std::string &line, const std::vector<Form> &forms);
    std::string name_;
    std::map<std::string, uint64_t> values_;
};

// Reads `NAME key=value ...`. Throws BadRequest, which says what is allowed.
Request parse(const std::string &line, const std::vector<Form> &forms);

// What a key takes, in words: "4 to 268435456, a multiple of 4", "spin|yield".
std::string allowed(const Key &key);

} // namespace yardstick
