// http_text.h - a server for one text (runtime/port/text_server.h), over HTTP.
#pragma once

#include "runtime/port/text_server.h"

extern const struct cn_text_server_ops cn_http_text;
