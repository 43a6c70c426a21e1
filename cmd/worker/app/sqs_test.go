package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/sqstest"
)

// The same commands on SQS, standard and FIFO: every key is paid once, what is set aside
// is redriven after a look into the ledger, and doctor knows the queue.
func TestSQS(t *testing.T) {
	t.Parallel()
	srv := sqstest.Start(t)
	for name, fifo := range map[string]bool{"standard": false, "fifo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := srv.Queue(t, sqstest.Spec{FIFO: fifo, Dead: true, MaxReceives: 4000, Attributes: map[string]string{"MessageRetentionPeriod": "86400"}})
			w := newWorldHere(t)
			w.queue = nil
			ms := w.models(modelserver.Options{KeyOf: func(r modelserver.Request) string { return r.MetadataKey() }})
			w.env = append(w.env, "PAIDONCE_BROKER_URL=sqs:", "PAIDONCE_BROKER_QUEUE="+q.Name, "PAIDONCE_BROKER_ENDPOINT="+srv.Endpoint(),
				"PAIDONCE_BROKER_REGION="+sqstest.Region, "PAIDONCE_HTTP_LISTEN=127.0.0.1:0")
			if _, cs, d := w.doctorCodes(); !slices.Equal(cs, []string{"PO017", "PO550"}) {
				t.Errorf("doctor says %+v", d)
			}
			cfg := srv.Config()
			b, err := sqs.Open(t.Context(), sqs.Config{Queue: q.Name, AWS: &cfg})
			if err != nil {
				t.Fatal(err)
			}
			w.setAside(b, letter("new", "x"), "receive limit")
			w.setAside(b, broker.Message{Body: []byte("no")}, "PO401 body is no JSON object")
			if err := b.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.submitted()
			w.submitted()
			r := w.start()
			url := "http://" + r.says(`"setting":"http.listen","address":"([^"]+)"`)
			w.until(ticketKey, "done")
			eventually(t, func() (bool, string) { s, b := get(t, url+"/readyz?verbose"); return s == 200, b })
			if _, metrics := get(t, url+"/metrics"); !strings.Contains(metrics, "paidonce_broker_connected 1\n") || !strings.Contains(metrics, "paidonce_broker_events_total{event=\"receives\"} ") {
				t.Error("the metrics lack what the adapter counts")
			}
			const line = "2 dead letters: 1 will call the model, 1 cannot be read and will be skipped"
			for _, args := range [][]string{{"list"}, {"redrive", "--dry-run"}, {"redrive", "--reason", "r"}} {
				if out := w.must("", append([]string{"dlq"}, args...)...); !strings.Contains(out, line) {
					t.Errorf("dlq %v says\n%s", args, out)
				}
			}
			w.until(letterKey("new"), "done")
			eventually(t, func() (bool, string) {
				d := srv.Depth(t, q.URL)
				return d == sqstest.Depth{}, fmt.Sprintf("queue %+v", d)
			})
			r.stop()
			if d := srv.Depth(t, q.Dead.URL); d.Visible+d.InFlight != 1 {
				t.Errorf("the dead-letter queue has %+v", d)
			}
			if bill := ms.BillByKey(); len(bill[ticketKey]) != 1 || len(bill[letterKey("new")]) != 1 || len(ms.Bill()) != 2 {
				t.Errorf("the bill has %v", bill)
			}
		})
	}
}
