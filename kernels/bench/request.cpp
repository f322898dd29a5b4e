// Parses requests.
#include "request.hpp"

#include <algorithm>
#include <sstream>

#include "failure.hpp"

namespace yardstick {

namespace {

// Returns the element with the given name, or NULL.
template <class Named>
const Named *find(const std::vector<Named> &all, const std::string &name) {
    for (const Named &one : all) {
        if (one.name == name) return &one;
    }
    return nullptr;
}

// Joins the names for an error message: "a, b, c".
template <class Named>
std::string names(const std::vector<Named> &all) {
    std::string list;
    for (const Named &one : all) list += (list.empty() ? "" : ", ") + one.name;
    return list;
}

[[noreturn]] void refuse(const Key &key, const std::string &text) {
    throw BadRequest(key.name + "=" + text + ": give " + allowed(key));
}

uint64_t value_of(const Key &key, const std::string &text) {
    if (!key.words.empty()) {
        auto word = std::find(key.words.begin(), key.words.end(), text);
        if (word == key.words.end()) refuse(key, text);
        return static_cast<uint64_t>(word - key.words.begin());
    }
    // A number of eighteen digits fits in 64 bits and can exceed every bound.
    if (text.empty() || text.size() > 18) refuse(key, text);
    uint64_t value = 0;
    for (char digit : text) {
        if (digit < '0' || digit > '9') refuse(key, text);
        value = value * 10 + static_cast<uint64_t>(digit - '0');
    }
    if (value < key.least || value > key.most || value % key.step != 0) refuse(key, text);
    return value;
}

} // namespace

Key number_key(std::string name, uint64_t least, uint64_t most, std::string fallback) {
    return Key{std::move(name), least, most, 1, std::move(fallback), {}};
}

Key word_key(std::string name, std::vector<std::string> words, std::string fallback) {
    return Key{std::move(name), 0, 0, 1, std::move(fallback), std::move(words)};
}

std::string allowed(const Key &key) {
    if (!key.words.empty()) {
        std::string list;
        for (const std::string &word : key.words) list += (list.empty() ? "" : "|") + word;
        return list;
    }
    std::string range = std::to_string(key.least) + " to " + std::to_string(key.most);
    return key.step == 1 ? range : range + ", a multiple of " + std::to_string(key.step);
}

Request parse(const std::string &line, const std::vector<Form> &forms) {
    if (line.size() > kMostLineBytes) {
        throw BadRequest("a line of more than " + std::to_string(kMostLineBytes) + " bytes: give one request a line");
    }
    std::istringstream words(line);
    Request request;
    words >> request.name_;
    const Form *form = find(forms, request.name_);
    if (form == nullptr) throw BadRequest("unknown request \"" + request.name_ + "\": give one of " + names(forms));
    for (std::string pair; words >> pair;) {
        size_t equals = pair.find('=');
        std::string name = pair.substr(0, equals);
        const Key *key = find(form->keys, name);
        if (equals == std::string::npos || key == nullptr) {
            throw BadRequest(form->name + ": \"" + pair + "\" is not one of its keys with a value: it takes " +
                             names(form->keys));
        }
        if (!request.values_.emplace(name, value_of(*key, pair.substr(equals + 1))).second) {
            throw BadRequest(form->name + ": " + name + " is given twice: give it once");
        }
    }
    for (const Key &key : form->keys) {
        if (request.values_.count(key.name) != 0) continue;
        if (key.fallback.empty()) throw BadRequest(form->name + ": " + key.name + " is missing: give " + allowed(key));
        request.values_.emplace(key.name, value_of(key, key.fallback));
    }
    return request;
}

} // namespace yardstick
