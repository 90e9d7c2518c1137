// Loads of a JetStream cluster: streams with file storage stand for partitions, and a publisher
// waits for the acknowledgement of the stream's replicas. Prints the outcome as JSON.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	readyWithin  = 60 * time.Second
	answerWithin = 60 * time.Second
	fetchRecords = 512
	pause        = 100 * time.Millisecond
	streamPrefix = "bench-"
)

type plan struct {
	address  string
	streams  int
	replicas int
	records  int
	size     int
	rate     int
	window   int
}

type outcome struct {
	Records int     `json:"records"`
	Payload int     `json:"payload"`
	Seconds float64 `json:"seconds"`
	P50ms   float64 `json:"p50_ms"`
	P99ms   float64 `json:"p99_ms"`
}

// pending is a record that is not yet acknowledged.
type pending struct {
	future nats.PubAckFuture
	sent   time.Time
}

func main() {
	var asked plan
	flag.StringVar(&asked.address, "address", "", "URLs of the servers")
	flag.IntVar(&asked.streams, "streams", 1, "number of streams")
	flag.IntVar(&asked.replicas, "replicas", 3, "replicas of each stream")
	flag.IntVar(&asked.records, "records", 1, "number of records of the load")
	flag.IntVar(&asked.size, "size", 100, "bytes of a record")
	flag.IntVar(&asked.rate, "rate", 0, "records a second; 0: as fast as it goes")
	flag.IntVar(&asked.window, "window", 1024, "records of a stream that wait for their acknowledgement")
	flag.Parse()
	if err := run(flag.Arg(0), asked); err != nil {
		log.Fatal(err)
	}
}

func run(command string, asked plan) error {
	connection, err := nats.Connect(asked.address, nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer connection.Close()
	streams, err := connection.JetStream(
		nats.MaxWait(answerWithin), nats.PublishAsyncMaxPending(asked.window*asked.streams))
	if err != nil {
		return err
	}
	switch command {
	case "create":
		return create(streams, asked)
	case "delete":
		return remove(streams, asked)
	case "publish":
		return show(publish(streams, asked))
	case "consume":
		return show(consume(streams, asked))
	}
	return fmt.Errorf("unknown command %q", command)
}

func show(done outcome, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(done)
}

func name(number int) string { return fmt.Sprintf("%s%d", streamPrefix, number) }

// create waits for the quorum of the servers: until then they refuse.
func create(streams nats.JetStreamContext, asked plan) error {
	for number := range asked.streams {
		config := &nats.StreamConfig{
			Name:     name(number),
			Subjects: []string{name(number)},
			Storage:  nats.FileStorage,
			Replicas: asked.replicas,
		}
		deadline := time.Now().Add(readyWithin)
		for {
			_, err := streams.AddStream(config, nats.MaxWait(5*time.Second))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("stream %s: %w", config.Name, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	return nil
}

func remove(streams nats.JetStreamContext, asked plan) error {
	for number := range asked.streams {
		if err := streams.DeleteStream(name(number)); err != nil {
			return err
		}
	}
	return nil
}

// publish sends records to the streams in turn. Latency is from the call to the acknowledgement.
func publish(streams nats.JetStreamContext, asked plan) (outcome, error) {
	waiting := make([]chan pending, asked.streams)
	found := make([][]float64, asked.streams)
	failures := make(chan error, asked.streams)
	var acknowledging sync.WaitGroup
	for number := range waiting {
		// With the record that is waited for and the one about to be queued it makes the window.
		waiting[number] = make(chan pending, max(asked.window-2, 0))
		acknowledging.Add(1)
		go func() {
			defer acknowledging.Done()
			var err error
			if found[number], err = acknowledge(waiting[number]); err != nil {
				failures <- fmt.Errorf("stream %s: %w", name(number), err)
			}
		}()
	}
	value := make([]byte, asked.size)
	begun := time.Now()
	for number := range asked.records {
		if asked.rate > 0 {
			due := time.Duration(float64(number) / float64(asked.rate) * float64(time.Second))
			time.Sleep(time.Until(begun.Add(due)))
		}
		stream, sent := number%asked.streams, time.Now()
		future, err := streams.PublishAsync(name(stream), value)
		if err != nil {
			return outcome{}, err
		}
		waiting[stream] <- pending{future, sent}
	}
	for _, one := range waiting {
		close(one)
	}
	acknowledging.Wait()
	select {
	case err := <-failures:
		return outcome{}, err
	default:
		return outcomeOf(asked, time.Since(begun), found), nil
	}
}

// acknowledge waits for the records of a stream in order, and returns their latencies in ms.
// After a failure it takes the rest without waiting, so that the publisher comes to its end.
func acknowledge(waiting <-chan pending) ([]float64, error) {
	var latencies []float64
	var failed error
	for one := range waiting {
		if failed != nil {
			continue
		}
		select {
		case <-one.future.Ok():
			latencies = append(latencies, float64(time.Since(one.sent).Microseconds())/1e3)
		case failed = <-one.future.Err():
		case <-time.After(answerWithin):
			failed = fmt.Errorf("no acknowledgement within %s", answerWithin)
		}
	}
	return latencies, failed
}

// consume reads all streams at once, each by a pull consumer without acknowledgements.
func consume(streams nats.JetStreamContext, asked plan) (outcome, error) {
	begun := time.Now()
	failures := make(chan error, asked.streams)
	for number := range asked.streams {
		records := asked.records / asked.streams
		if number < asked.records%asked.streams {
			records++
		}
		go func() { failures <- read(streams, name(number), records) }()
	}
	for range asked.streams {
		if err := <-failures; err != nil {
			return outcome{}, err
		}
	}
	return outcomeOf(asked, time.Since(begun), nil), nil
}

// read goes on with a new consumer where its own has gone: an election of the servers takes one along.
func read(streams nats.JetStreamContext, stream string, records int) error {
	next, progressed := uint64(1), time.Now()
	var reader *nats.Subscription
	for records > 0 {
		found, err := fetch(streams, &reader, stream, next, min(records, fetchRecords))
		if isPassing(err) && time.Since(progressed) < answerWithin {
			reader = nil
			time.Sleep(pause)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s, %d records left: %w", stream, records, err)
		}
		last, err := found[len(found)-1].Metadata()
		if err != nil {
			return err
		}
		next, progressed = last.Sequence.Stream+1, time.Now()
		records -= len(found)
	}
	return nil
}

func fetch(
	streams nats.JetStreamContext, reader **nats.Subscription, stream string, from uint64, records int,
) ([]*nats.Msg, error) {
	if *reader == nil {
		made, err := streams.PullSubscribe(
			stream, "", nats.BindStream(stream), nats.AckNone(), nats.StartSequence(from))
		if err != nil {
			return nil, err
		}
		*reader = made
	}
	return (*reader).Fetch(records, nats.MaxWait(answerWithin))
}

func isPassing(err error) bool {
	for _, passing := range []error{
		nats.ErrNoResponders, nats.ErrConsumerNotFound, nats.ErrConsumerDeleted,
		nats.ErrConsumerLeadershipChanged, nats.ErrTimeout,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

func outcomeOf(asked plan, took time.Duration, latencies [][]float64) outcome {
	var all []float64
	for _, some := range latencies {
		all = append(all, some...)
	}
	sort.Float64s(all)
	return outcome{
		Records: asked.records,
		Payload: asked.records * asked.size,
		Seconds: took.Seconds(),
		P50ms:   percentile(all, 0.5),
		P99ms:   percentile(all, 0.99),
	}
}

func percentile(ordered []float64, part float64) float64 {
	if len(ordered) == 0 {
		return 0
	}
	return ordered[min(len(ordered)-1, int(part*float64(len(ordered))))]
}
