// Writes JSON objects.
#pragma once

#include <stdint.h>

#include <string>

namespace yardstick {

// A JSON object. Its members have the order in which they were added. Names are not escaped.
class Json {
public:
    // Adds a finite number. Throws Failure for other numbers, which JSON can't represent.
    Json &number(const char *name, double value);
    Json &count(const char *name, uint64_t value);
    Json &text(const char *name, const std::string &value);
    Json &boolean(const char *name, bool value);
    Json &object(const char *name, const Json &value);

    // Returns the object on one line.
    std::string line() const { return "{" + members_ + "}"; }

private:
    Json &member(const char *name, const std::string &value);
    std::string members_;
};

} // namespace yardstick
