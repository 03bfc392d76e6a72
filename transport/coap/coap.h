// coap.h - the methods and codes of CoAP, and the sizes of its messages.
//
// The numbers are those of RFC 7252, 12.1.
#pragma once

// Largest payload of one message in bytes, in either direction.
#define CN_COAP_BODY_MAX 8192     // over TCP
#define CN_COAP_DATAGRAM_MAX 1280 // over UDP

// Largest UDP payload in bytes. It fits Ethernet's 1500 bytes with IPv4 or IPv6, PPPoE and one
// tunnel. A larger one would not hold another chunk. path_mtu.h finds the size that a path takes.
#define CN_COAP_MTU 1424

// Bytes of a UDP payload around the body of a chunk: the DTLS 1.2 record with a connection ID and
// its padding to 16 bytes, the CoAP header, the token and the options.
#define CN_COAP_AROUND 144
_Static_assert(CN_COAP_DATAGRAM_MAX == CN_COAP_MTU - CN_COAP_AROUND, "the largest body fits");

enum cn_coap_method {
    CN_COAP_GET = 1,
    CN_COAP_POST = 2,
    CN_COAP_PUT = 3,
    CN_COAP_DELETE = 4,
};

enum cn_coap_code {                   // class * 32 + detail
    CN_COAP_SILENT = 0,               // send no answer; for a request whose wants_reply is false
    CN_COAP_CREATED = 65,             // 2.01
    CN_COAP_DELETED = 66,             // 2.02
    CN_COAP_CHANGED = 68,             // 2.04
    CN_COAP_CONTENT = 69,             // 2.05
    CN_COAP_BAD_REQUEST = 128,        // 4.00
    CN_COAP_UNAUTHORIZED = 129,       // 4.01
    CN_COAP_BAD_OPTION = 130,         // 4.02
    CN_COAP_FORBIDDEN = 131,          // 4.03
    CN_COAP_NOT_FOUND = 132,          // 4.04
    CN_COAP_METHOD_NOT_ALLOWED = 133, // 4.05
    CN_COAP_INCOMPLETE = 136,         // 4.08
    CN_COAP_CONFLICT = 137,           // 4.09
    CN_COAP_GONE = 138,               // 4.10
    CN_COAP_TOO_LARGE = 141,          // 4.13
    CN_COAP_UNPROCESSABLE = 150,      // 4.22
    CN_COAP_TOO_MANY = 157,           // 4.29
    CN_COAP_INTERNAL_ERROR = 160,     // 5.00
    CN_COAP_UNAVAILABLE = 163,        // 5.03
};
