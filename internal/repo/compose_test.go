package repo

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// composeFile is what the checks need of docker-compose.yml.
type composeFile struct {
	Services map[string]service
	Volumes  map[string]any
}

type service struct {
	Image       string
	Build       string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Profiles    []string
	Privileged  bool
	ReadOnly    bool          `yaml:"read_only"`
	CapDrop     []string      `yaml:"cap_drop"`
	StopGrace   time.Duration `yaml:"stop_grace_period"`
	Healthcheck *struct{ Test []string }
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
}

func readCompose(text string) (composeFile, error) {
	var c composeFile
	err := yaml.Unmarshal([]byte(text), &c)
	return c, err
}

// Case 66: the emulator's image is pinned to one that starts without a token.
func TestCompose(t *testing.T) {
	c, err := readCompose(read(t, "docker-compose.yml"))
	if err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	for name, profiles := range map[string][]string{"postgres": nil, "rabbitmq": nil, "sqs": nil, "mail": nil,
		"migrate": {"worker", "worker-sqs"}, "worker": {"worker"}, "worker-sqs": {"worker-sqs"}, "test": {"test"}} {
		s, ok := c.Services[name]
		if !ok || !slices.Equal(s.Profiles, profiles) {
			t.Errorf("docker-compose.yml has service %s: %v, with profiles %v, want %v", name, ok, s.Profiles, profiles)
		}
	}
	for _, b := range checkCompose(c) {
		t.Error("docker-compose.yml: " + b)
	}
	if want := "${AWS_EMULATOR_IMAGE:-localstack/localstack:4.14.0}"; c.Services["sqs"].Image != want {
		t.Errorf("image of sqs is %s, want %s: the last LocalStack that starts without a token, and replaceable", c.Services["sqs"].Image, want)
	}
	if image := c.Services["rabbitmq"].Image; !strings.HasSuffix(image, "-management") {
		t.Errorf("image of rabbitmq is %s, which has no management pages", image)
	}
	for worker, broker := range map[string]string{"worker": "rabbitmq", "worker-sqs": "sqs"} {
		for _, b := range checkWorker(c, worker, broker) {
			t.Errorf("docker-compose.yml: service %s %s", worker, b)
		}
	}
}

// checkWorker says what is wrong with a service that runs the program.
func checkWorker(c composeFile, name, broker string) []string {
	s := c.Services[name]
	ledger := s.Environment["PAIDONCE_LEDGER_URL"]
	var bad []string
	for what, ok := range map[string]bool{
		"does not run the program of this repository":     s.Build == "." && slices.Equal(s.Command, []string{"run"}),
		"does not wait until the schema is there":         s.DependsOn["migrate"].Condition == "service_completed_successfully",
		"does not wait for " + broker:                     s.DependsOn[broker].Condition == "service_healthy",
		"talks to another broker than " + broker:          regexp.MustCompile(`(@|//)` + broker + `:`).MatchString(s.Environment["PAIDONCE_BROKER_URL"] + s.Environment["PAIDONCE_BROKER_ENDPOINT"]),
		"has no ledger, or another than migrate":          ledger != "" && ledger == c.Services["migrate"].Environment["PAIDONCE_LEDGER_URL"],
		"may write to its root, or has capabilities":      s.ReadOnly && slices.Equal(s.CapDrop, []string{"ALL"}),
		"is killed before it can have drained and closed": s.StopGrace >= (25+20)*time.Second, // consumer.drain, and a poll of SQS
	} {
		if !ok {
			bad = append(bad, what)
		}
	}
	return bad
}

// TestComposeProof: what tools/e2e-compose.sh lays over the file keeps its promises.
func TestComposeProof(t *testing.T) {
	c, err := readCompose(read(t, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	over, err := readCompose(read(t, "tools/e2e-compose.yml"))
	if err != nil {
		t.Fatalf("tools/e2e-compose.yml: %v", err)
	}
	for name, s := range c.Services {
		if ports := over.Services[name].Ports; len(s.Ports) > 0 && (ports == nil || len(ports) > 0) {
			t.Errorf("tools/e2e-compose.yml leaves the ports of %s open: it would not run beside `make up`", name)
		}
	}
	if strings.Contains(read(t, "tools/e2e-compose.yml"), "ports: []") {
		t.Error("tools/e2e-compose.yml: an empty list adds nothing to the ports that are there; write !reset []")
	}
	models := over.Services["models"]
	for _, b := range checkCompose(composeFile{Services: map[string]service{"models": models}}) {
		t.Error("tools/e2e-compose.yml: " + b)
	}
	if models.Healthcheck == nil {
		t.Error("tools/e2e-compose.yml: nothing can wait for models")
	}
	for _, name := range []string{"worker", "worker-sqs"} {
		s := over.Services[name]
		if s.DependsOn["models"].Condition != "service_healthy" {
			t.Errorf("tools/e2e-compose.yml: service %s does not wait for models", name)
		}
		for _, provider := range []string{"OPENAI", "ANTHROPIC"} {
			if url := s.Environment["PAIDONCE_PROVIDERS_"+provider+"_BASE_URL"]; !strings.HasPrefix(url, "http://models:8081") {
				t.Errorf("tools/e2e-compose.yml: service %s would pay %s at %q", name, provider, url)
			}
		}
	}
}

// TestEnvExample: .env.example names every variable of the compose file and no other, and
// the defaults that it shows are those.
func TestEnvExample(t *testing.T) {
	used, text := map[string]string{}, strings.ReplaceAll(read(t, "docker-compose.yml"), "$$", "") // $$ is a plain $
	uses := regexp.MustCompile(`\$\{([A-Z_]+):-([^}]*)\}`).FindAllStringSubmatch(text, -1)
	for _, m := range uses {
		used[m[1]] = m[2]
	}
	if n := strings.Count(text, "$"); n != len(uses) {
		t.Errorf("docker-compose.yml uses %d variables, of which %d have the form ${NAME:-default}: without a default one must set them", n, len(uses))
	}
	shown := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#?([A-Z_]+)=(.*)$`).FindAllStringSubmatch(read(t, ".env.example"), -1) {
		shown[m[1]] = m[2]
	}
	if !maps.Equal(used, shown) || len(used) == 0 {
		t.Errorf("docker-compose.yml uses %v, .env.example shows %v", used, shown)
	}
}

// TestEmulatorIsReady runs the health check of the SQS emulator on what LocalStack
// and Floci answer at each stage.
func TestEmulatorIsReady(t *testing.T) {
	c, err := readCompose(read(t, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	test := c.Services["sqs"].Healthcheck.Test
	if len(test) != 2 || test[0] != "CMD-SHELL" {
		t.Fatalf("health check of sqs is %q, want one line of shell", test)
	}
	bin := t.TempDir()
	script := "#!/bin/sh\n[ \"$ANSWER\" ] || exit 7\nprintf '%s' \"$ANSWER\"\n"
	if err := os.WriteFile(filepath.Join(bin, "curl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	localstack := `{"completed": {"BOOT": true, "START": true, "READY": %v, "SHUTDOWN": false}, "scripts": [{"stage": "READY", "name": "10-queues.sh", "state": "%s"}]}`
	floci := `{"completed":{"boot":true,"start":true,"ready":%v,"shutdown":false},"scripts":{"boot":[],"ready":[{"script":"/etc/localstack/init/ready.d/10-queues.sh","state":"%s","return_code":0}]}}`
	for answer, want := range map[string]bool{
		"":                                 false, // the port is not open
		`{"completed": {}, "scripts": []}`: false,
		fmt.Sprintf(localstack, false, "UNKNOWN"):                       false,
		fmt.Sprintf(localstack, false, "RUNNING"):                       false,
		fmt.Sprintf(localstack, true, "ERROR"):                          false,
		fmt.Sprintf(localstack, true, "SUCCESSFUL"):                     true,
		fmt.Sprintf(localstack, true, `SUCCESSFUL"}, {"state": "ERROR`): false,
		fmt.Sprintf(floci, true, "error"):                               false,
		fmt.Sprintf(floci, true, "successful"):                          true,
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(test[1], "$$", "$"))
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "ANSWER="+answer)
		if out, err := cmd.CombinedOutput(); (err == nil) != want {
			t.Errorf("healthy at %q: %v, want %v\n%s", answer, err == nil, want, out)
		}
	}
}

// checkCompose says what is wrong with the services.
func checkCompose(c composeFile) []string {
	var bad []string
	for name, s := range c.Services {
		say := func(format string, args ...any) {
			bad = append(bad, "service "+name+": "+fmt.Sprintf(format, args...))
		}
		if s.Build == "" && !pinned(s.Image) {
			say("image %q is not pinned to a version", s.Image)
		}
		if s.Privileged {
			say("is privileged")
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				say("port %s is open beyond loopback", p)
			}
		}
		for _, v := range s.Volumes {
			if why := badMount(c, v); why != "" {
				say("volume %s %s", v, why)
			}
		}
		if len(s.Ports) > 0 && s.Build == "" && s.Healthcheck == nil {
			say("has ports and no health check: nothing can wait for it") // ours brings one in its image
		}
		for on, d := range s.DependsOn {
			switch target, ok := c.Services[on]; {
			case !ok:
				say("depends on %s, which is not there", on)
			case d.Condition == "service_healthy" && target.Build == "" && target.Healthcheck == nil:
				say("waits for the health of %s, which has no health check", on)
			case d.Condition == "" || d.Condition == "service_started":
				say("depends on %s without waiting until it is ready", on)
			}
		}
	}
	slices.Sort(bad)
	return bad
}

var version = regexp.MustCompile(`:[a-z-]*[0-9]+\.[0-9]+[a-z0-9.-]*$|@sha256:[0-9a-f]{64}$`)

// pinned reports whether an image names a version, also as the default of a variable.
func pinned(image string) bool {
	if v, ok := strings.CutPrefix(image, "${"); ok {
		_, image, _ = strings.Cut(strings.TrimSuffix(v, "}"), ":-")
	}
	return version.MatchString(image)
}

// badMount says why a volume may not be mounted; "" if it may.
func badMount(c composeFile, v string) string {
	from, to, _ := strings.Cut(v, ":")
	path, mode, _ := strings.Cut(to, ":")
	switch {
	case strings.Contains(v, "docker.sock"):
		return "hands over the host"
	case strings.HasPrefix(from, "."):
		if _, err := os.Stat(filepath.Join(root, from)); err != nil {
			return "is not in the repository"
		}
		if mode != "ro" {
			return "lets the container write into the repository"
		}
	case strings.HasPrefix(from, "/") || strings.HasPrefix(from, "~"):
		return "is a folder of the host"
	default:
		if _, ok := c.Volumes[from]; !ok {
			return "is not declared under volumes"
		}
	}
	if !strings.HasPrefix(path, "/") {
		return "has no target"
	}
	return ""
}

func TestCheckComposeFinds(t *testing.T) {
	c, err := readCompose(`
services:
  a: { image: localstack/localstack:latest, ports: ["5432:5432"] }
  b: { image: "${X:-redis}", healthcheck: { test: [CMD, "true"] }, volumes: ["/var/run/docker.sock:/s", "./nowhere:/x:ro", "./docs:/x", "/etc:/x:ro", "loose:/x"] }
  c: { image: redis:7.4.1, privileged: true, depends_on: { a: { condition: service_healthy }, b: { condition: service_started }, z: { condition: service_healthy } } }
  d: { image: redis:7.4.1, ports: ["127.0.0.1:1:1"], healthcheck: { test: [CMD, "true"] }, volumes: ["kept:/x"], depends_on: { b: { condition: service_healthy } } }
volumes: { kept: }
`)
	if err != nil {
		t.Fatal(err)
	}
	got := checkCompose(c)
	for _, want := range []string{
		"a: image \"localstack/localstack:latest\" is not pinned", "a: port 5432:5432 is open", "a: has ports and no health check",
		"b: image \"${X:-redis}\" is not pinned", "docker.sock:/s hands over", "./nowhere:/x:ro is not in", "./docs:/x lets", "/etc:/x:ro is a folder", "loose:/x is not declared",
		"c: is privileged", "c: waits for the health of a", "c: depends on b without waiting", "c: depends on z, which is not there",
	} {
		if i := slices.IndexFunc(got, func(g string) bool { return strings.Contains(g, want) }); i < 0 {
			t.Errorf("nobody said %q", want)
		} else {
			got = slices.Delete(got, i, i+1)
		}
	}
	if len(got) > 0 {
		t.Errorf("too much was said: %q", got)
	}
}

// TestDockerfile: versions are pinned, the program gets its signals, and what it
// is built from reaches the builder.
func TestDockerfile(t *testing.T) {
	text := read(t, "Dockerfile")
	from := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(text, -1)
	if len(from) != 2 {
		t.Fatalf("Dockerfile has %d stages, want one that builds and one that runs", len(from))
	}
	if !pinned(from[0][1]) {
		t.Errorf("image %s is not pinned to a version", from[0][1])
	}
	if want := "gcr.io/distroless/static-debian12:nonroot"; !strings.HasPrefix(from[1][1], want) {
		t.Errorf("the program runs in %s, want %s: no shell, not root", from[1][1], want)
	}
	for _, instruction := range []string{"ENTRYPOINT", "CMD"} {
		if !regexp.MustCompile(`(?m)^` + instruction + ` \["`).MatchString(text) {
			t.Errorf("%s is not in exec form: a shell would swallow SIGTERM", instruction)
		}
	}
	if !regexp.MustCompile(`(?m)^HEALTHCHECK .*CMD \["/worker", "healthcheck"\]`).MatchString(text) {
		t.Error("the image has no health check, and no shell for one of the compose file's")
	}
	ignore := strings.Split(read(t, ".dockerignore"), "\n")
	for _, path := range goFiles(t) {
		top, _, nested := strings.Cut(path, "/")
		apart := top == "bench" // a module of its own, no part of the program
		if nested && !apart && !isTest(path) && !slices.Contains(ignore, "!"+top) {
			t.Errorf("%s would not reach the image's builder: add !%s to .dockerignore", path, top)
			break
		}
	}
}
