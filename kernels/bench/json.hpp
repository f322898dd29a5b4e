// JSON objects, written.
#pragma once

#include <stdint.h>

#include <string>

namespace yardstick {

// One object, its members in the order in which they are added. Names are plain and need no escaping.
class Json {
public:
    // A number must be finite: JSON has no other. Throws Failure.
    Json &number(const char *name, double value);
    Json &count(const char *name, uint64_t value);
    Json &text(const char *name, const std::string &value);
    Json &boolean(const char *name, bool value);
    Json &object(const char *name, const Json &value);

    // The object on one line.
    std::string line() const { return "{" + members_ + "}"; }

private:
    Json &member(const char *name, const std::string &value);
    std::string members_;
};

} // namespace yardstick
