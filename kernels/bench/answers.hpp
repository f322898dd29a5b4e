// The functions that answer the requests in forms.cpp. Each function is in its own file.
#pragma once

#include "json.hpp"
#include "session.hpp"

namespace yardstick {

Json answer_device(const Request &request, Session &session);
Json answer_copy(const Request &request, Session &session);
Json answer_calibrate(const Request &request, Session &session);
Json answer_kernel(const Request &request, Session &session);
Json answer_serial(const Request &request, Session &session);
Json answer_balanced(const Request &request, Session &session);
Json answer_balanced_three(const Request &request, Session &session);
Json answer_alloc(const Request &request, Session &session);
Json answer_completion(const Request &request, Session &session);
Json answer_launch(const Request &request, Session &session);

} // namespace yardstick
