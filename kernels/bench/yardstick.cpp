// The yardstick is the baseline program: a small server that measures a GPU with plain CUDA, one request per line.
// `yardstick --help` lists the requests.
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
Status serve(const std::string &line, FreeList &free_list) {
    try {
        Request request = parse(line, forms());
        Session session = open_session(request, free_list);
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

// Reads a line without its end. Returns false at the end of the input. It truncates a line that is too long, but the
// result is still longer than any valid request.
bool read_line(std::string *line) {
    line->clear();
    int c;
    while ((c = getchar()) != EOF && c != '\n') {
        if (line->size() <= kMostLineBytes) *line += static_cast<char>(c);
    }
    return c != EOF || !line->empty();
}

Status serve_all(FreeList &free_list) {
    std::string line;
    while (read_line(&line)) {
        if (serve(line, free_list) == kFailed) return kFailed;
    }
    return kDone;
}

} // namespace

} // namespace yardstick

int main(int count, char **arguments) {
    using namespace yardstick;
    FreeList free_list;
    if (count == 1) return serve_all(free_list);
    if (count == 3 && strcmp(arguments[1], "--once") == 0) return serve(arguments[2], free_list);
    if (count == 2 && strcmp(arguments[1], "--help") == 0) {
        printf("%s", help().c_str());
        return kDone;
    }
    fprintf(stderr, "%s", help().c_str());
    return kBadRequest;
}
