// A server of the benchmark's methods by gRPC's C++ library and its callbacks. It prints its address, and gives unused memory back for each line of
// standard input, which it then prints.
#include <grpcpp/grpcpp.h>
#include <malloc.h>

#include <iostream>
#include <string>

#include "test.grpc.pb.h"

namespace {

using grpc::CallbackServerContext;
using grpc::Status;
using grpc::testing::SimpleRequest;
using grpc::testing::SimpleResponse;
using grpc::testing::TestService;
using Input = grpc::testing::StreamingOutputCallRequest;
using Output = grpc::testing::StreamingOutputCallResponse;

constexpr int kMessages = 1000;
constexpr int kPayloadSize = 100;

// Stream sends kMessages messages.
class Stream : public grpc::ServerWriteReactor<Output> {
 public:
  Stream() { Next(); }
  void OnWriteDone(bool ok) override { ok ? Next() : Finish(Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (sent_++ == kMessages) return Finish(Status::OK);
    out_.Clear();
    out_.mutable_payload()->set_body(std::string(kPayloadSize, 0));
    StartWrite(&out_);
  }
  Output out_;
  int sent_ = 0;
};

// Echo answers each message with one that has the same payload.
class Echo : public grpc::ServerBidiReactor<Input, Output> {
 public:
  Echo() { StartRead(&in_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(Status::OK);
    *out_.mutable_payload() = in_.payload();
    StartWrite(&out_);
  }
  void OnWriteDone(bool ok) override { ok ? StartRead(&in_) : Finish(Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  Input in_;
  Output out_;
};

class Service : public TestService::CallbackService {
  grpc::ServerUnaryReactor* UnaryCall(CallbackServerContext* context, const SimpleRequest* in, SimpleResponse* out) override {
    *out->mutable_payload() = in->payload();
    auto* reactor = context->DefaultReactor();
    reactor->Finish(Status::OK);
    return reactor;
  }
  grpc::ServerWriteReactor<Output>* StreamingOutputCall(CallbackServerContext*, const Input*) override { return new Stream; }
  grpc::ServerBidiReactor<Input, Output>* FullDuplexCall(CallbackServerContext*) override { return new Echo; }
};

}  // namespace

int main() {
  Service service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::cout << "127.0.0.1:" << port << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    malloc_trim(0);
    std::cout << line << std::endl;
  }
  _exit(0);
}
