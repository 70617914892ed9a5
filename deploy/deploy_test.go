package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// tool returns the path of a program.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("FILO_CI") != "" {
			t.Fatalf("there is no %s; `make deps` installs it", name)
		}
		t.Skipf("there is no %s; `make deps` installs it", name)
	}
	return path
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// systemd-analyze finds no mistakes in the units. Another program takes the place of the application.
func TestUnits(t *testing.T) {
	analyze := tool(t, "systemd-analyze")
	dir := t.TempDir()
	program := tool(t, "true")
	service := bytes.Replace(read(t, "systemd/app.service"), []byte("ExecStart=/usr/local/bin/app"), []byte("ExecStart="+program), 1)
	if !bytes.Contains(service, []byte("ExecStart="+program)) {
		t.Fatal("the service doesn't start /usr/local/bin/app")
	}
	verify := func(service []byte) string {
		for name, text := range map[string][]byte{"app.service": service, "app.socket": read(t, "systemd/app.socket")} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		command := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, "app.socket"), filepath.Join(dir, "app.service"))
		printed, err := command.CombinedOutput()
		if err != nil && len(printed) == 0 {
			t.Fatal(err)
		}
		var about []string // messages about these files, since the machine has other units
		for line := range strings.Lines(string(printed)) {
			if strings.Contains(line, "app.service") || strings.Contains(line, "app.socket") {
				about = append(about, line)
			}
		}
		return strings.Join(about, "")
	}
	if said := verify(service); said != "" {
		t.Errorf("systemd-analyze: %s", said)
	}
	// systemd-analyze does find a mistake.
	if said := verify(append(service, "\n[Service]\nTimeoutStopSecs=1\n"...)); !strings.Contains(said, "TimeoutStopSecs") {
		t.Errorf("systemd-analyze has nothing against TimeoutStopSecs: %q", said)
	}
}

func TestDockerfile(t *testing.T) {
	result, err := parser.Parse(bytes.NewReader(read(t, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	stages, _, err := instructions.Parse(result.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Warnings) > 0 {
		t.Errorf("warnings: %v", result.Warnings)
	}
	last := stages[len(stages)-1]
	var user, entry string
	var ports []string
	for _, command := range last.Commands {
		switch command := command.(type) {
		case *instructions.UserCommand:
			user = command.User
		case *instructions.ExposeCommand:
			ports = command.Ports
		case *instructions.EntrypointCommand:
			entry = strings.Join(command.CmdLine, " ")
			if command.PrependShell {
				t.Error("the program isn't process 1, and gets no SIGTERM")
			}
		}
	}
	if user != "65532:65532" || entry != "/app" || !slices.Equal(ports, []string{"8080"}) {
		t.Errorf("user %q, entrypoint %q, ports %q", user, entry, ports)
	}
}

// manifests returns the objects in kubernetes/, each decoded as its kind. It fails for a field that the kind doesn't have.
func manifests(t *testing.T) map[string]any {
	t.Helper()
	all := make(map[string]any)
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		for _, document := range strings.Split(string(read(t, name)), "\n---\n") {
			object, err := decode(document)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all[reflect.TypeOf(object).Elem().Name()] = object
		}
	}
	return all
}

func decode(document string) (any, error) {
	var kind struct {
		APIVersion, Kind string
	}
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		return nil, err
	}
	object, ok := map[string]any{
		"apps/v1 Deployment":            new(appsv1.Deployment),
		"v1 Service":                    new(corev1.Service),
		"policy/v1 PodDisruptionBudget": new(policyv1.PodDisruptionBudget),

		"networking.k8s.io/v1 NetworkPolicy": new(networkingv1.NetworkPolicy),
	}[kind.APIVersion+" "+kind.Kind]
	if !ok {
		return nil, fmt.Errorf("the kind %q of %q isn't known to this test", kind.Kind, kind.APIVersion)
	}
	return object, yaml.UnmarshalStrict([]byte(document), object)
}

// The manifests conform to their schemas, and are consistent with each other.
func TestKubernetes(t *testing.T) {
	all := manifests(t)
	deployment := all["Deployment"].(*appsv1.Deployment)
	service := all["Service"].(*corev1.Service)
	budget := all["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget)
	policy := all["NetworkPolicy"].(*networkingv1.NetworkPolicy)
	pod := deployment.Spec.Template
	for name, selector := range map[string]map[string]string{
		"the deployment": deployment.Spec.Selector.MatchLabels, "the service": service.Spec.Selector, "the budget": budget.Spec.Selector.MatchLabels,
		"the policy": policy.Spec.PodSelector.MatchLabels,
	} {
		if len(selector) == 0 || !reflect.DeepEqual(selector, pod.Labels) {
			t.Errorf("%s selects %v, and the pods have %v", name, selector, pod.Labels)
		}
	}
	container := pod.Spec.Containers[0]
	ports := make(map[string]int32)
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	if target := service.Spec.Ports[0].TargetPort.StrVal; ports[target] != 8080 {
		t.Errorf("the service leads to the port %q, of %v", target, ports)
	}
	probes := map[string]*corev1.Probe{"/livez": container.LivenessProbe, "/livez ": container.StartupProbe, "/readyz": container.ReadinessProbe}
	for path, probe := range probes {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != strings.TrimSpace(path) || ports[probe.HTTPGet.Port.StrVal] != 8080 {
			t.Errorf("the probe of %s is %+v", path, probe)
		}
	}
	// The drain is longer than the readiness probe takes to fail, and drain and shutdown together are shorter than Kubernetes waits.
	ready := container.ReadinessProbe
	if noticed := ready.PeriodSeconds*ready.FailureThreshold + ready.TimeoutSeconds; noticed >= drainSeconds(t) {
		t.Errorf("the readiness probe needs %d s to fail, and the drain takes %d", noticed, drainSeconds(t))
	}
	if grace := *pod.Spec.TerminationGracePeriodSeconds; grace <= int64(drainSeconds(t)+graceSeconds(t)) {
		t.Errorf("Kubernetes waits for %d s, and the program takes %d", grace, drainSeconds(t)+graceSeconds(t))
	}
	if replicas := *deployment.Spec.Replicas; replicas <= budget.Spec.MaxUnavailable.IntVal {
		t.Errorf("%d pods, of which %d may be missing", replicas, budget.Spec.MaxUnavailable.IntVal)
	}
	// No service exposes the port of the metrics. Only a named namespace can reach it, and it requires a token, without which no pod starts.
	for _, port := range service.Spec.Ports {
		if port.TargetPort.StrVal != "http" {
			t.Errorf("the service opens %v", port.TargetPort)
		}
	}
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			if port.Port.StrVal != "http" && (len(rule.From) != 1 || rule.From[0].NamespaceSelector == nil || len(rule.From[0].NamespaceSelector.MatchLabels) == 0) {
				t.Errorf("the policy opens %v to %v", port.Port, rule.From)
			}
		}
	}
	token := slices.IndexFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == "METRICS_TOKEN" })
	if token < 0 || container.Env[token].ValueFrom == nil || container.Env[token].ValueFrom.SecretKeyRef == nil || container.Env[token].ValueFrom.SecretKeyRef.Optional != nil {
		t.Errorf("METRICS_TOKEN isn't from a secret that must be there: %+v", container.Env)
	}
	// decode does find an unknown field.
	if _, err := decode("apiVersion: v1\nkind: Service\nspec: {port: []}\n"); err == nil || !strings.Contains(err.Error(), `"port"`) {
		t.Errorf("got %v", err)
	}
}

func drainSeconds(t *testing.T) int32 { return constant(t, "drainTime") }
func graceSeconds(t *testing.T) int32 { return constant(t, "gracePeriod") }

func manifestGrace(t *testing.T) int32 {
	t.Helper()
	return int32(*manifests(t)["Deployment"].(*appsv1.Deployment).Spec.Template.Spec.TerminationGracePeriodSeconds)
}

// constant returns a constant of the program app, in seconds.
func constant(t *testing.T, name string) (seconds int32) {
	t.Helper()
	match := regexp.MustCompile(name + ` = (\d+) \* time\.Second`).FindSubmatch(read(t, "app/main.go"))
	if match == nil {
		t.Fatalf("app/main.go has no %s", name)
	}
	fmt.Sscan(string(match[1]), &seconds)
	return seconds
}

// systemd waits longer than the program may take to end.
func TestStopTime(t *testing.T) {
	match := regexp.MustCompile(`TimeoutStopSec=(\d+)`).FindSubmatch(read(t, "systemd/app.service"))
	if match == nil {
		t.Fatal("there is no TimeoutStopSec")
	}
	var seconds int32
	fmt.Sscan(string(match[1]), &seconds)
	if seconds <= drainSeconds(t)+graceSeconds(t) {
		t.Errorf("systemd waits for %d s, and the program takes %d", seconds, drainSeconds(t)+graceSeconds(t))
	}
}

// settings returns the lines of a unit, without comments and empty lines.
func settings(text []byte) (lines []string) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// docs/OPERATIONS.md has the same units. Every setting in the documentation of contrib/restart is also in these units.
func TestUnitsInDocuments(t *testing.T) {
	operations := string(read(t, "../docs/OPERATIONS.md"))
	var all []string
	for _, name := range []string{"app.socket", "app.service"} {
		lines := settings(read(t, "systemd/"+name))
		all = append(all, lines...)
		block := regexp.MustCompile("(?s)```ini\n# /etc/systemd/system/" + name + "\n(.*?)```").FindStringSubmatch(operations)
		if block == nil || !slices.Equal(settings([]byte(block[1])), lines) {
			t.Errorf("OPERATIONS.md has another %s: %q, want %q", name, block, lines)
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^//\t([A-Z]\w+=.*)$`).FindAllStringSubmatch(string(read(t, "../contrib/restart/doc.go")), -1) {
		if !slices.Contains(all, line[1]) {
			t.Errorf("contrib/restart has %q, and the units haven't", line[1])
		}
	}
}

// The service has memory for two processes, since both run during a restart in place, and file descriptors for all connections.
func TestMemory(t *testing.T) {
	unit := string(read(t, "systemd/app.service"))
	number := func(text, pattern string) (n int64) {
		t.Helper()
		match := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if match == nil {
			t.Fatalf("there is no %s", pattern)
		}
		fmt.Sscan(match[1], &n)
		return n
	}
	limit := number(unit, `GOMEMLIMIT=(\d+)MiB`)
	if high := number(unit, `MemoryHigh=(\d+)M`); high < 2*limit {
		t.Errorf("MemoryHigh is %d MiB, and two programs take %d", high, 2*limit)
	}
	if conns, files := limit<<20/4/(16<<10), number(unit, `LimitNOFILE=(\d+)`); files < conns+conns/4 {
		t.Errorf("%d descriptors, and %d connections", files, conns)
	}
	container := string(read(t, "kubernetes/app.yaml"))
	if limit, memory := number(container, `GOMEMLIMIT, value: (\d+)MiB`), number(container, `limits: {memory: (\d+)Mi}`); limit >= memory {
		t.Errorf("GOMEMLIMIT is %d MiB of %d", limit, memory)
	}
}

func promtool(t *testing.T, dir string, arguments ...string) {
	t.Helper()
	command := exec.Command(tool(t, "promtool"), arguments...)
	command.Dir = dir
	if printed, err := command.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, printed)
	}
}

// The scrape configuration is valid, and has a token.
func TestScrape(t *testing.T) {
	if !bytes.Contains(read(t, "prometheus/prometheus.yml"), []byte("authorization: {credentials_file: ")) {
		t.Error("it brings no token")
	}
	// Debian's promtool is built without Kubernetes' discovery.
	config := strings.Replace(string(read(t, "prometheus/prometheus.yml")), "kubernetes_sd_configs:\n      - role: pod", "static_configs: []", 1)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "check", "config", "--syntax-only", "prometheus.yml")
}

// The alerts are valid, and pass the tests of alerts_test.yml.
func TestAlerts(t *testing.T) {
	promtool(t, "prometheus", "check", "rules", "alerts.yml")
	promtool(t, "prometheus", "test", "rules", "alerts_test.yml")
}

// debugPage matches the path of a page of package debug.
var debugPage = regexp.MustCompile(`/debug/[a-z/]+(?:\?debug=\d)?`)

// Each alert says what to do next, with a command, a metric or a log record, and docs/OPERATIONS.md has a line about the alert.
func TestAlertsLead(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(read(t, "prometheus/alerts.yml"), &rules); err != nil {
		t.Fatal(err)
	}
	operations := string(read(t, "../docs/OPERATIONS.md"))
	known := 0
	for _, rule := range rules.Groups[0].Rules {
		if description := rule.Annotations["description"]; !strings.Contains(description, "`") {
			t.Errorf("%s leads to no command or record: %q", rule.Alert, description)
		}
		line := fmt.Sprintf("\n| `%s`, a %s | ", rule.Alert, rule.Labels["severity"])
		if strings.Count(operations, line) != 1 {
			t.Errorf("docs/OPERATIONS.md has no line, or several, with %q", line)
		}
		known++
	}
	// The pages of package debug that the alerts and docs/OPERATIONS.md mention exist.
	pages := slices.Concat(debugPage.FindAllString(string(read(t, "prometheus/alerts.yml")), -1), debugPage.FindAllString(operations, -1))
	if len(pages) < 10 {
		t.Errorf("only %q are named", pages)
	}
	r := router.New()
	r.Mount("/debug", debug.Handler(debug.Options{LogLevel: new(slog.LevelVar), Allow: func(*filo.Ctx) bool { return true }}))
	program := servertest.New(t, r.Serve)
	for _, page := range slices.Compact(slices.Sorted(slices.Values(pages))) {
		if strings.HasSuffix(page, "/profile") {
			continue // this page takes half a minute
		}
		if answer := program.Do(t, "GET "+page); answer.Status != 200 {
			t.Errorf("%s, which an alert or docs/OPERATIONS.md names, answers %d", page, answer.Status)
		}
	}
	if lines := strings.Count(operations, "\n| `Filo"); lines != known {
		t.Errorf("docs/OPERATIONS.md has lines about %d alerts, and there are %d", lines, known)
	}
}

// panel is a panel of a dashboard.
type panel struct {
	ID      int
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, LegendFormat string }
}

func dashboard(t *testing.T) []panel {
	t.Helper()
	var board struct{ Panels []panel }
	if err := json.Unmarshal(read(t, "grafana/dashboard.json"), &board); err != nil {
		t.Fatal(err)
	}
	if len(board.Panels) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	return board.Panels
}

// Panels don't overlap, and their expressions are valid PromQL.
func TestDashboard(t *testing.T) {
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", "app", "$instance", ".*")
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	taken := make(map[[2]int]string)
	ids := make(map[int]bool)
	for _, p := range dashboard(t) {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies on %q or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for i, target := range p.Targets {
			rules = append(rules, rule{fmt.Sprintf("panel:%d_%d", p.ID, i), variables.Replace(target.Expr)})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(name, text, 0o644); err != nil {
		t.Fatal(err)
	}
	promtool(t, ".", "check", "rules", name)
}
