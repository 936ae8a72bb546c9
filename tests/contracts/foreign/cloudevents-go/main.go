// Reads committed records of Kafka topics by the CloudEvents SDK for Go and Sarama.
//
// Usage: cloudevents BOOTSTRAP TOPIC... Prints one JSON object per record, up to the end of each partition.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/IBM/sarama"
	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
)

type line struct {
	Topic           string                 `json:"topic"`
	ID              string                 `json:"id"`
	Source          string                 `json:"source"`
	Type            string                 `json:"type"`
	Subject         string                 `json:"subject"`
	DataContentType string                 `json:"datacontenttype"`
	Data            []byte                 `json:"data"`
	Extensions      map[string]interface{} `json:"extensions"`
}

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Return.Errors = false
	client, err := sarama.NewClient([]string{os.Args[1]}, config)
	check(err)
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	for _, topic := range os.Args[2:] {
		partitions, err := client.Partitions(topic)
		check(err)
		for _, partition := range partitions {
			read(client, consumer, topic, partition)
		}
	}
}

// The last record before the end is a transaction's marker, which no consumer sees: reading ends with the record before it.
func read(client sarama.Client, consumer sarama.Consumer, topic string, partition int32) {
	end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
	check(err)
	if end == 0 {
		return
	}
	records, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	check(err)
	defer records.AsyncClose()
	for record := range records.Messages() {
		event, err := binding.ToEvent(context.Background(), kafka_sarama.NewMessageFromConsumerMessage(record))
		check(err)
		check(event.Validate())
		extensions := event.Extensions()
		for _, added := range []string{"kafkaoffset", "kafkapartition", "kafkatopic"} { // by the SDK itself
			delete(extensions, added)
		}
		check(json.NewEncoder(os.Stdout).Encode(line{topic, event.ID(), event.Source(), event.Type(), event.Subject(),
			event.DataContentType(), append([]byte{}, event.Data()...), extensions}))
		if record.Offset >= end-2 {
			return
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
