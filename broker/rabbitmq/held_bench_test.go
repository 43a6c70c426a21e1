package rabbitmq

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// BenchmarkHeld is what a delivery of 1 KB takes that was received and is not settled, with what it is handed out as. Each of its texts
// is made anew, as the driver reads them. Read it at -benchtime 2000x or more.
func BenchmarkHeld(b *testing.B) {
	r := newConsumer(&Broker{cfg: &settings{Config: Config{Prefetch: b.N, AckTimeout: time.Hour}}})
	s := &session{c: r, held: map[uint64]*held{}, receipts: r.id + "-1-"}
	sub := &subscription{window: b.N}
	r.started, r.session = true, s
	given := make([]broker.Delivery, 0, b.N)
	before := inUse()
	for i := range b.N {
		s.arrive(sub, amqp.Delivery{DeliveryTag: uint64(i + 1), Body: []byte(strings.Repeat("lorem ipsum ", 85)), MessageId: fmt.Sprintf("%036d", i),
			ContentType: strings.Clone("application/json"), Timestamp: time.Now(), ConsumerTag: strings.Clone("paidonce-0c9f27ae-1-1"), RoutingKey: strings.Clone("jobs"),
			Headers: amqp.Table{strings.Clone("job"): strings.Clone("summary"), strings.Clone("published"): fmt.Sprint(time.Now().UnixNano())}})
		ds, _ := r.take(1)
		given = append(given, ds...)
	}
	b.StopTimer()
	after := inUse()
	for name, n := range map[string]uint64{"live-B": after.HeapAlloc - before.HeapAlloc, "live-objects": after.HeapObjects - before.HeapObjects,
		"allocated-B": after.TotalAlloc - before.TotalAlloc} {
		b.ReportMetric(float64(n)/float64(b.N), name+"/delivery")
	}
	b.ReportMetric(0, "ns/op") // no time is of interest
	runtime.KeepAlive(given)
	runtime.KeepAlive(r)
}

// inUse is what is in use after two collections.
func inUse() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
