// The yardstick: a small server that measures a GPU, a request a line. `yardstick --help` says what can be asked.
#include <stdio.h>
#include <string.h>

#include <map>

#include "answers.hpp"
#include "forms.hpp"

namespace yardstick {

namespace {

enum Status { kDone = 0, kFailed = 1, kBadRequest = 2 };

using Answer = Json (*)(const Request &, Session &);

const std::map<std::string, Answer> kAnswers = {
    {"device", answer_device},       {"copy", answer_copy},
    {"calibrate", answer_calibrate}, {"kernel", answer_kernel},
    {"serial", answer_serial},       {"balanced", answer_balanced},
    {"alloc", answer_alloc},         {"balanced-three", answer_balanced_three},
    {"launch", answer_launch},       {"completion", answer_completion},
};

void print(const Json &answer) {
    printf("%s\n", answer.line().c_str());
    fflush(stdout);
}

// Answers one line.
Status serve(const std::string &line, Shelf &shelf) {
    try {
        Request request = parse(line, forms());
        Session session = open_session(request, shelf);
        print(kAnswers.at(request.name())(request, session));
        return kDone;
    } catch (const BadRequest &error) {
        print(Json().text("error", error.what()));
        return kBadRequest;
    } catch (const std::exception &error) {
        print(Json().text("error", error.what()));
        return kFailed;
    }
}

// Reads a line without its end; false at the input's. What is longer than any request is cut, but still too long.
bool read_line(std::string *line) {
    line->clear();
    int c;
    while ((c = getchar()) != EOF && c != '\n') {
        if (line->size() <= kMostLineBytes) *line += static_cast<char>(c);
    }
    return c != EOF || !line->empty();
}

Status serve_all(Shelf &shelf) {
    std::string line;
    while (read_line(&line)) {
        if (serve(line, shelf) == kFailed) return kFailed;
    }
    return kDone;
}

} // namespace

} // namespace yardstick

int main(int count, char **arguments) {
    using namespace yardstick;
    Shelf shelf;
    if (count == 1) return serve_all(shelf);
    if (count == 3 && strcmp(arguments[1], "--once") == 0) return serve(arguments[2], shelf);
    if (count == 2 && strcmp(arguments[1], "--help") == 0) {
        printf("%s", help().c_str());
        return kDone;
    }
    fprintf(stderr, "%s", help().c_str());
    return kBadRequest;
}
