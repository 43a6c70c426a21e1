package job

import (
	"errors"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// AnswerOf makes of a provider's own object of an answer, as its JSON came, what can be settled. It is for programs
// that have it from elsewhere: a webhook, an invocation log, a console. The call's route is given it as
// the answer in one piece that it is, so a route that reads a stream cannot use it. An error says why it is no answer.
func AnswerOf(object []byte) (Found, error) {
	d, ok := readDocument(object)
	b := d.bill()
	switch {
	case !ok:
		return Found{}, errors.New("it is no JSON object")
	case d.pending():
		return Found{}, fmt.Errorf("its status is %s: it is not over", clean(d.Status, maxID))
	case d.broken():
		return Found{}, errors.New("it says that there is no answer")
	case d.objectID() == "" && !b.told():
		return Found{}, errors.New("it has neither an id nor a usage, which answers of model providers have")
	}
	r, err := keepable(&ledger.Response{Codec: codecObject, Body: object})
	return Found{Finding: Happened, Response: r, ObjectID: d.objectID(), Usage: b.tally.usage(), Call: b.call()}, err
}
