package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

var (
	//go:embed cpp/server.cc
	cppServer []byte
	//go:embed cpp/test.proto
	cppProto []byte
)

// nameCpp is the name of the server that uses gRPC's C++ library.
const nameCpp = "c++"

// cppVariable is the environment variable that tells the servers' processes where the C++ server's program is. It is empty if the program couldn't be
// built.
const cppVariable = "BENCH_GRPC_CPP"

// buildCpp builds the C++ server in a directory, and returns the path of its program. It needs a compiler, protoc with gRPC's plugin, and gRPC's C++
// library: Debian's g++, pkg-config, protobuf-compiler-grpc, libprotobuf-dev and libgrpc++-dev.
func buildCpp(dir string) (program string, err error) {
	if err := os.WriteFile(filepath.Join(dir, "server.cc"), cppServer, 0o600); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "test.proto"), cppProto, 0o600); err != nil {
		return "", err
	}
	plugin, err := exec.LookPath("grpc_cpp_plugin")
	if err != nil {
		return "", err
	}
	if _, err := runIn(dir, "protoc", "--cpp_out=.", "--grpc_out=.", "--plugin=protoc-gen-grpc="+plugin, "test.proto"); err != nil {
		return "", err
	}
	flags, err := runIn(dir, "pkg-config", "--cflags", "--libs", "grpc++", "protobuf")
	if err != nil {
		return "", err
	}
	args := []string{"-O2", "-std=c++17", "-o", "server", "server.cc", "test.pb.cc", "test.grpc.pb.cc"}
	if _, err := runIn(dir, "g++", append(args, strings.Fields(flags)...)...); err != nil {
		return "", err
	}
	return filepath.Join(dir, "server"), nil
}

// runIn runs a program in a directory, and returns the program's output.
func runIn(dir, program string, args ...string) (out string, err error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	all, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", program, err, all)
	}
	return string(all), err
}
