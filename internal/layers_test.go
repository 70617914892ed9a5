package internal

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/filohttp/filo"

// layers are the packages below the root, lowest first. Each may import only the packages of this module that come before it in the list.
var layers = []string{
	"internal/apart",
	"internal/version",
	"internal/clientcert",
	"internal/race",
	"internal/clock",
	"internal/lend",
	"internal/syntax",
	"internal/params",
	"internal/target",
	"internal/field",
	"internal/cookie",
	"internal/formdata",
	"internal/requestlog",
	"internal/requestctx",
	"internal/pace",
	"internal/walklist",
	"internal/sweep",
	"internal/census",
	"internal/life",
	"internal/tasks",
	"internal/budget",
	"internal/linger",
	"internal/localfile",
	"internal/filepart",
	"internal/http1",
	"internal/http2",
	"internal/proxyproto",
	"internal/hooks",
	"internal/answerconn",
	"internal/sock",
	"internal/listening",
	"internal/outbox",
	"internal/http2conn",
	"internal/admit",
	"internal/handshakes",
	"internal/class",
	"internal/running",
	"internal/loop",
}

// The packages below the root import neither the root nor a layer above them.
func TestLayers(t *testing.T) {
	for i, layer := range layers {
		out, err := exec.Command("go", "list", "-deps", module+"/"+layer).Output()
		if err != nil {
			t.Fatalf("go list -deps of %s: %v", layer, err)
		}
		for dependency := range strings.Lines(string(out)) {
			dependency = strings.TrimSpace(dependency)
			if dependency != module && !strings.HasPrefix(dependency, module+"/") {
				continue
			}
			if name := strings.TrimPrefix(dependency, module+"/"); !slices.Contains(layers[:i+1], name) {
				t.Errorf("%s depends on %s, which isn't below it", layer, name)
			}
		}
	}
}
