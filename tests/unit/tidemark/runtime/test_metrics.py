import pytest
from prometheus_client.exposition import generate_latest
from tidemark.runtime.metrics import KAFKA_METRICS, Metrics


def shown(metrics: Metrics) -> list[str]:
    return generate_latest(metrics.registry).decode().splitlines()


def test_a_counter_is_shown_under_kafkas_name() -> None:
    metrics = Metrics("broker")
    bytes_in = metrics.counter("kafka_server_brokertopicmetrics_bytesin", labels=("topic",))
    bytes_in.at("orders").value += 10
    bytes_in.at("orders").value += 5
    assert 'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 15.0' in shown(metrics)


def test_a_deleted_topic_is_no_longer_shown() -> None:
    metrics = Metrics("broker")
    size = metrics.gauge("kafka_log_log_size", labels=("topic",))
    size.at("orders").value = 7
    size.forget("orders")
    assert not any("orders" in line for line in shown(metrics))


def test_timings_are_cumulative_buckets() -> None:
    metrics = Metrics("broker")
    timings = metrics.timings("t_seconds", "how long", ("request",), bounds=(0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 9.0):
        timings.at("Fetch").observe(seconds)
    lines = shown(metrics)
    assert 't_seconds_bucket{le="0.1",request="Fetch"} 2.0' in lines
    assert 't_seconds_bucket{le="1.0",request="Fetch"} 3.0' in lines
    assert 't_seconds_bucket{le="+Inf",request="Fetch"} 4.0' in lines
    assert 't_seconds_count{request="Fetch"} 4.0' in lines


def test_a_computed_gauge_is_asked_when_it_is_read() -> None:
    metrics = Metrics("controller")
    topics = ["a"]
    metrics.computed_one(
        "kafka_controller_kafkacontroller_globaltopiccount", lambda: float(len(topics))
    )
    topics.append("b")
    assert "kafka_controller_kafkacontroller_globaltopiccount 2.0" in shown(metrics)


def test_the_release_and_the_process_are_shown() -> None:
    lines = shown(Metrics("broker"))
    assert any(line.startswith('tidemark_build_info{service="broker"') for line in lines)
    assert any(line.startswith("process_resident_memory_bytes") for line in lines)


def test_a_metric_must_say_what_it_counts() -> None:
    with pytest.raises(AssertionError, match="needs a description"):
        Metrics("broker").counter("nameless")


def test_wrong_labels_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="has labels"):
        Metrics("broker").counter("c", "counts", ("topic",)).at()


def test_kafka_names_are_what_its_exporter_makes() -> None:
    assert all(name.startswith("kafka_") and name == name.lower() for name in KAFKA_METRICS)
