// Package sealed encrypts the bodies of any ledger: results, captured answers and inputs.
//
// It stands before the ledger, which sees sealed bytes and treats them like any others. A
// sealed body names its key, so keys can be changed at any time: the first one seals, all of them
// open. What was stored before there were keys is read as it is.
//
// Keys, actions, hashes of inputs, errors and what an attempt is known by stay readable: the ledger
// works with them.
package sealed

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/paidonce/paidonce/ledger"
)

var (
	// ErrKey is ledger.ErrKey: what is sealed with a key that is not among these does not open.
	ErrKey = ledger.ErrKey
	// ErrConfig: a text is no list of keys. It never holds a part of that text.
	ErrConfig = errors.New("PO218 encryption keys cannot be read")
)

// KeySize is that of a key, in bytes.
const KeySize = 32

// checkSize is that of a key's check value, in bytes.
const checkSize = 4

// Keys seal and open bodies. The zero value has none: it seals nothing, and opens what is not sealed.
type Keys struct {
	first *key // seals
	all   map[string]*key
}

// key is one of them. It encrypts with AES-256-GCM. Its nonces are a MAC of what is sealed, and of
// where: a body that is stored again, because a reply was lost, is the same bytes, so that ledgers
// recognise it; no two bodies share a nonce by more than chance, though no count is kept.
type key struct {
	id    string
	check []byte // tells its secret from another of the same id: that one is a mistake, not damage
	aead  cipher.AEAD
	nonce []byte // key of the MAC
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// ParseKeys reads keys, the one that seals first: each an id, a colon and 32 bytes in base64, with commas
// or line breaks between them. Empty lines, and lines that begin with #, are passed over. The
// errors are ErrConfig.
func ParseKeys(text string) (*Keys, error) {
	k := &Keys{all: map[string]*key{}}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for part := range strings.SplitSeq(line, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			if err := k.add(part); err != nil {
				return nil, fmt.Errorf("%w: key %d %w", ErrConfig, len(k.all)+1, err)
			}
		}
	}
	return k, nil
}

func (k *Keys) add(text string) error {
	id, secret, ok := strings.Cut(text, ":")
	raw, err := base64.StdEncoding.DecodeString(secret)
	switch {
	case !ok || !idForm.MatchString(id): // it may be the secret that stands here
		return errors.New("does not begin with an id (letters, digits, dot, dash, underscore) and a colon")
	case err != nil || len(raw) != KeySize:
		return fmt.Errorf("(%s) is not %d bytes in base64; openssl rand -base64 %d makes one", id, KeySize, KeySize)
	case k.all[id] != nil:
		return fmt.Errorf("(%s) has the id of another; old bodies would not open", id)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	nonce, err := hkdf.Key(sha256.New, raw, nil, "paidonce nonce", sha256.Size)
	if err != nil {
		return err
	}
	check, err := hkdf.Key(sha256.New, raw, nil, "paidonce key check", checkSize)
	if err != nil {
		return err
	}
	k.all[id] = &key{id, check, aead, nonce}
	if k.first == nil {
		k.first = k.all[id]
	}
	return nil
}

// IDs are the ids of the keys, the one that seals first.
func (k *Keys) IDs() []string {
	if k.first == nil {
		return nil
	}
	ids := []string{k.first.id}
	for id := range k.all {
		if id != k.first.id {
			ids = append(ids, id)
		}
	}
	return ids
}

// mark begins a sealed body; the length of the key's id, the id, its check value, the nonce and the sealed
// text follow. No text begins so.
var mark = []byte("\x00POSEAL\x01")

// place is where a body belongs. It opens nowhere else.
type place []string

func inputPlace(k ledger.Key, h ledger.Hash) place {
	return place{"input", k.Tenant, k.Text, h.String()}
}

func resultPlace(k ledger.Key, id ledger.ID) place {
	return place{"result", k.Tenant, k.Text, id.String()}
}

func answerPlace(tenant string, job int64, attempt ledger.ID, codec string) place {
	return place{"answer", tenant, fmt.Sprint(job), attempt.String(), codec}
}

func messagePlace(id ledger.OutgoingID) place {
	return place{"message", id.Tenant, fmt.Sprint(id.Job), id.Result.String(), fmt.Sprint(id.N)}
}

// bound is the header and the place as the seal covers them.
func (p place) bound(header []byte) []byte {
	b := bytes.Clone(header)
	for _, s := range p {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	return b
}

// seal seals a body for its place. Without keys it returns it as it is.
func (k *Keys) seal(p place, body []byte) []byte {
	if k.first == nil || body == nil {
		return body
	}
	header := append(append(append(bytes.Clone(mark), byte(len(k.first.id))), k.first.id...), k.first.check...)
	bound := p.bound(header)
	m := hmac.New(sha256.New, k.first.nonce)
	m.Write(binary.BigEndian.AppendUint64(nil, uint64(len(bound)))) // a hash takes everything
	m.Write(bound)
	m.Write(body)
	nonce := m.Sum(nil)[:k.first.aead.NonceSize()]
	sealed := make([]byte, 0, len(header)+len(nonce)+len(body)+k.first.aead.Overhead())
	sealed = append(append(sealed, header...), nonce...)
	return k.first.aead.Seal(sealed, nonce, body, bound)
}

// open opens what is stored at a place; what is not sealed it returns as it is. ErrKey: with a key
// that is not there, or with another secret. ErrDamaged: it was changed, or belongs to another place.
func (k *Keys) open(p place, stored []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(stored, mark)
	if !ok {
		return stored, nil
	}
	if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
		return nil, fmt.Errorf("%w: a sealed body of %d bytes has no key", ledger.ErrDamaged, len(stored))
	}
	id := string(rest[1 : 1+rest[0]])
	rest = rest[1+rest[0]:]
	key := k.all[id]
	switch {
	case key == nil && idForm.MatchString(id):
		return nil, fmt.Errorf("%w: its key is %s, and configured are %v", ErrKey, id, k.IDs())
	case key == nil || len(rest) < checkSize+key.aead.NonceSize():
		return nil, fmt.Errorf("%w: a sealed body of %d bytes has no key or no nonce", ledger.ErrDamaged, len(stored))
	case !bytes.Equal(rest[:checkSize], key.check):
		return nil, fmt.Errorf("%w: its key is %s, and what is configured under that id is another secret", ErrKey, id)
	}
	rest = rest[checkSize:]
	nonce := rest[:key.aead.NonceSize()]
	body, err := key.aead.Open(nil, nonce, rest[len(nonce):], p.bound(stored[:len(stored)-len(rest)]))
	if err != nil {
		return nil, fmt.Errorf("%w: it does not open with key %s: it was changed, or belongs elsewhere", ledger.ErrDamaged, id)
	}
	if body == nil {
		body = []byte{} // an empty one
	}
	return body, nil
}
