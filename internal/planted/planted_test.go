package planted

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	s := Secret("sk")
	for name, text := range map[string]string{
		"plain": "401 for key " + s, "hex": `\x` + hex.EncodeToString([]byte("key "+s)), "basic": base64.StdEncoding.EncodeToString([]byte("user:" + s)),
		"shifted": base64.StdEncoding.EncodeToString([]byte("user2:" + s)), "shifted more": base64.StdEncoding.EncodeToString([]byte("user22:" + s)),
		"an encryption key": "k1:" + Key(),
	} {
		if len(Find("x "+text+" y")) == 0 {
			t.Errorf("%s is not found in %s", name, text)
		}
	}
	if found := Find("a plant, a plan, a (hidden)"); found != nil {
		t.Errorf("found %v", found)
	}
	if raw, err := base64.StdEncoding.DecodeString(Key()); err != nil || len(raw) != 32 || strings.Count(strings.Join(Find(s+" "+s), ""), Mark) < 2 {
		t.Errorf("a key of %d bytes, %v", len(raw), err)
	}
}
