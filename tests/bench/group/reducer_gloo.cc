// Gloo's ring over its TCP transport, as the distribution builds it: the peer of this bench, no
// part of the product.
#include <cstdio>
#include <memory>
#include <string>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "tests/bench/group/reducer.h"

extern "C" const char *const reducer_name = "gloo";

static std::shared_ptr<gloo::rendezvous::Context> context;
static uint32_t tag;

static void add(void *sum, const void *a, const void *b, size_t count)
{
    gloo::sum<float>(sum, a, b, count);
}

extern "C" int reducer_open(uint32_t rank, uint32_t ranks, char *const *addresses,
                            const char *store)
{
    try {
        gloo::transport::tcp::attr where(addresses[rank]);
        gloo::rendezvous::FileStore files(store);
        auto device = gloo::transport::tcp::CreateDevice(where);

        context = std::make_shared<gloo::rendezvous::Context>((int)rank, (int)ranks);
        context->setTimeout(std::chrono::seconds(60));
        context->connectFullMesh(files, device);
        return 0;
    } catch (const std::exception &error) {
        fprintf(stderr, "gloo: %s\n", error.what());
        return 1;
    }
}

extern "C" int reducer_sum(float *data, size_t count)
{
    try {
        gloo::AllreduceOptions options(context);

        options.setOutput(data, count);
        options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
        options.setReduceFunction(add);
        options.setTag(tag++);
        gloo::allreduce(options);
        return 0;
    } catch (const std::exception &error) {
        fprintf(stderr, "gloo: %s\n", error.what());
        return 1;
    }
}

extern "C" void reducer_close(void)
{
    context.reset();
}
