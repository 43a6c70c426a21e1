package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fakePython makes virtual environments, and installs moto into them unless PIP_FAILS
// is set.
const fakePython = `#!/bin/sh
set -eu
case "$1 $2" in
"-c "*) ;;
"-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
"-m pip")
	[ -z "${PIP_FAILS:-}" ] || { echo 'no route to the index' >&2; exit 1; }
	for what; do :; done
	printf '#!/bin/sh\necho %s\n' "'$what'" >"${0%/*}/moto_server"
	chmod 755 "${0%/*}/moto_server" ;;
*) echo "python3 $*" >&2; exit 2 ;;
esac
`

// need runs tools/need.sh where nothing is installed but python3 and a compiler, and
// the other servers are named.
func need(t *testing.T, home string, env ...string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	for _, tool := range []string{"bash", "cat", "chmod", "cp", "dirname", "env", "ln", "mkdir", "mktemp", "rm", "sh", "tail", "uname", "xargs", "echo"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"python3": fakePython, "gcc": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "tools/need.sh"), "echo", "the command ran")
	cmd.Env = append([]string{"PATH=" + bin, "HOME=" + home, "TMPDIR=" + t.TempDir(), "PAIDONCE_TEST_POSTGRES=x", "PAIDONCE_TEST_AMQP=x"}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// motoFolders are what need.sh made, links and environments.
func motoFolders(t *testing.T, home string) []string {
	t.Helper()
	var all []string
	for _, cache := range []string{".cache", "Library/Caches"} {
		found, err := filepath.Glob(filepath.Join(home, cache, "paidonce", "*"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// TestNeedInstallsMoto: once, in the version and the place that internal/sqstest knows.
func TestNeedInstallsMoto(t *testing.T) {
	version := regexp.MustCompile(`(?m)^moto_version=(.*)$`).FindStringSubmatch(read(t, "tools/need.sh"))
	if version == nil || !strings.Contains(read(t, "internal/sqstest/moto.go"), `motoVersion = "`+version[1]+`"`) {
		t.Fatalf("tools/need.sh installs moto %v, and internal/sqstest looks for another", version)
	}
	home := t.TempDir()
	if out, err := need(t, home, "PAIDONCE_TEST_SQS=http://127.0.0.1:1"); err != nil || out != "the command ran\n" || len(motoFolders(t, home)) > 0 {
		t.Errorf("with an emulator that is named: %v\n%s\n%v", err, out, motoFolders(t, home))
	}
	if out, err := need(t, home); err != nil || !strings.Contains(out, "installing moto") || !strings.HasSuffix(out, "the command ran\n") {
		t.Fatalf("the first run: %v\n%s", err, out)
	}
	if out, err := need(t, home); err != nil || out != "the command ran\n" {
		t.Errorf("the second run has nothing to do: %v\n%s", err, out)
	}
	programs := []string{}
	for _, f := range motoFolders(t, home) {
		if filepath.Base(f) == "moto-"+version[1] {
			programs = append(programs, filepath.Join(f, "bin", "moto_server"))
		}
	}
	if len(programs) != 1 {
		t.Fatalf("found %v, want one moto", motoFolders(t, home))
	}
	if out, err := exec.CommandContext(t.Context(), programs[0]).Output(); err != nil || string(out) != "moto[server]=="+version[1]+"\n" {
		t.Errorf("what was installed is %q, %v", out, err)
	}
}

// TestNeedSaysWhatFailed: the command does not run, and nothing half is left.
func TestNeedSaysWhatFailed(t *testing.T) {
	home := t.TempDir()
	out, err := need(t, home, "PIP_FAILS=1")
	if err == nil || !strings.Contains(out, "no route to the index") || !strings.Contains(out, "PAIDONCE_MOTO_SERVER") || strings.Contains(out, "the command ran") {
		t.Errorf("an installation that failed: %v\n%s", err, out)
	}
	if left := motoFolders(t, home); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}
