// Members of a share group, and clients that log in, with franz-go, for the conformance tests.
//
// Each line of the output is one fact: a name, a tab, a value.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// Longest time in which something must have happened.
	patience = 120 * time.Second
	// One poll waits this long for records.
	moment = 500 * time.Millisecond
	// Longest wait for the answers to acknowledgements. Without an answer the client tries again,
	// or gives the records up when their lock has ended.
	answered = 90 * time.Second
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "login" {
		logIn(os.Args[2], os.Args[3])
		return
	}
	if len(os.Args) != 5 {
		fail("arguments: ways|read BOOTSTRAP TOPIC GROUP, or login FILE TOPIC")
	}
	bootstrap, topic, group := os.Args[2], os.Args[3], os.Args[4]
	switch os.Args[1] {
	case "ways":
		everyWay(bootstrap, topic, group)
	case "read":
		readAll(bootstrap, topic, group)
	default:
		fail("no program " + os.Args[1])
	}
}

func tell(name string, value any) { fmt.Printf("%s\t%v\n", name, value) }

func fail(reason any) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}

// member joins a group. Errors of acknowledgements are counted in refused, by partition.
func member(bootstrap, topic, group string, refused *outcomes) *kgo.Client {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup(group),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { refused.add(results) }),
	)
	if err != nil {
		fail(err)
	}
	return client
}

// outcomes are the errors of acknowledgements since the last call of take.
type outcomes struct {
	lock   sync.Mutex
	failed map[int32]error
}

func (found *outcomes) add(results kgo.ShareAckResults) {
	found.lock.Lock()
	defer found.lock.Unlock()
	for _, result := range results {
		if result.Err != nil {
			if found.failed == nil {
				found.failed = map[int32]error{}
			}
			found.failed[result.Partition] = result.Err
		}
	}
}

func (found *outcomes) take() map[int32]error {
	found.lock.Lock()
	defer found.lock.Unlock()
	failed := found.failed
	found.failed = nil
	return failed
}

func poll(client *kgo.Client) []*kgo.Record {
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	return client.PollFetches(ctx).Records()
}

func flush(client *kgo.Client) bool {
	ctx, cancel := context.WithTimeout(context.Background(), answered)
	defer cancel()
	return client.FlushAcks(ctx) == nil
}

// until polls until enough records were handled.
func until(client *kgo.Client, count int, handle func(*kgo.Record)) {
	deadline := time.Now().Add(patience)
	for seen := 0; seen < count; {
		if time.Now().After(deadline) {
			fail(fmt.Sprintf("%d of %d records after %s", seen, count, patience))
		}
		for _, record := range poll(client) {
			handle(record)
			seen++
		}
	}
}

// everyWay acknowledges the values 0 to 99 in every way. Values that divide by 10 are released
// once, those with remainder 1 are rejected, those with remainder 2 are renewed before they are
// accepted.
func everyWay(bootstrap, topic, group string) {
	refused := &outcomes{}
	client := member(bootstrap, topic, group, refused)
	counts := map[string]int32{}
	const values, released = 100, 10
	until(client, values+released, func(record *kgo.Record) {
		value := string(record.Value)
		counts[value] = record.DeliveryCount()
		switch {
		case strings.HasSuffix(value, "0") && record.DeliveryCount() == 1:
			record.Ack(kgo.AckRelease)
		case strings.HasSuffix(value, "1"):
			record.Ack(kgo.AckReject)
		case strings.HasSuffix(value, "2"):
			record.Ack(kgo.AckRenew)
			if !flush(client) {
				fail("a renewal was not answered")
			}
			record.Ack(kgo.AckAccept)
		default:
			record.Ack(kgo.AckAccept)
		}
	})
	tell("answered", flush(client))
	tell("refused", len(refused.take()))
	tell("values", len(counts))
	var twice []string
	for value, count := range counts {
		if count == 2 {
			twice = append(twice, value)
		}
	}
	sort.Strings(twice)
	tell("delivered twice", strings.Join(twice, " "))
	client.Close()
}

// readAll accepts all records until the program is ended. It tells "got" for each record, and
// "accepted" once its acknowledgement was answered without an error, or else "unknown".
func readAll(bootstrap, topic, group string) {
	refused := &outcomes{}
	client := member(bootstrap, topic, group, refused)
	for {
		records := poll(client)
		for _, record := range records {
			tell("got", place(record))
			record.Ack(kgo.AckAccept)
		}
		if len(records) == 0 {
			continue
		}
		isAnswered, failed := flush(client), refused.take()
		for _, record := range records {
			if isAnswered && failed[record.Partition] == nil {
				tell("accepted", place(record))
			} else {
				tell("unknown", place(record))
			}
		}
	}
}

func place(record *kgo.Record) string {
	return fmt.Sprintf("%d-%d %s", record.Partition, record.Offset, record.Value)
}
