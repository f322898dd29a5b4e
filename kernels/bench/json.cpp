// Writes JSON objects.
#include "json.hpp"

#include <math.h>
#include <stdio.h>

#include "failure.hpp"

namespace yardstick {

namespace {

// Escapes quotes, backslashes and control characters, as JSON requires. All other bytes must be UTF-8.
std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escaped[8];
            snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
            out += escaped;
        } else {
            out += c;
        }
    }
    return out + "\"";
}

} // namespace

Json &Json::member(const char *name, const std::string &value) {
    if (!members_.empty()) members_ += ", ";
    members_ += quoted(name) + ": " + value;
    return *this;
}

Json &Json::number(const char *name, double value) {
    if (!isfinite(value)) throw Failure(std::string(name) + " is not a finite number: nothing was measured");
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    return member(name, text);
}

Json &Json::count(const char *name, uint64_t value) { return member(name, std::to_string(value)); }
Json &Json::text(const char *name, const std::string &value) { return member(name, quoted(value)); }
Json &Json::boolean(const char *name, bool value) { return member(name, value ? "true" : "false"); }
Json &Json::object(const char *name, const Json &value) { return member(name, value.line()); }

} // namespace yardstick
