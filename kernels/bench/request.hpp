// The form of requests, and a request parsed from a line of text.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <string>
#include <vector>

namespace yardstick {

// The maximum length of a line, without its end.
constexpr size_t kMostLineBytes = 1000;

// A key of a request. Its value is a whole number within bounds or one of several words.
struct Key {
    std::string name;
    uint64_t least, most; // bounds of a number, inclusive
    uint64_t step;        // a number must be a multiple of step
    std::string fallback; // default; if it is empty, the key is required
    std::vector<std::string> words; // if not empty, the value must be one of these words
};

Key number_key(std::string name, uint64_t least, uint64_t most, std::string fallback = "");
Key word_key(std::string name, std::vector<std::string> words, std::string fallback = "");

// The form of a request: its name, its keys, a description of the measurement, and the members of the answer.
// --help prints the last two.
struct Form {
    std::string name;
    std::vector<Key> keys;
    std::string about, members;
};

// A request in which all keys have valid values.
class Request {
public:
    const std::string &name() const { return name_; }

    // Returns the value of a number key, or the index of a word key's word. The form must have the key.
    uint64_t operator[](const std::string &key) const { return values_.at(key); }

private:
    friend Request parse(const std::string &line, const std::vector<Form> &forms);
    std::string name_;
    std::map<std::string, uint64_t> values_;
};

// Parses `NAME key=value ...`. Throws BadRequest with a message that lists the permitted values.
Request parse(const std::string &line, const std::vector<Form> &forms);

// Describes the valid values of a key: "4 to 268435456, a multiple of 4", "spin|yield".
std::string allowed(const Key &key);

} // namespace yardstick
