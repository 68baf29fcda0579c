# SPDX-License-Identifier: Apache-2.0
"""otlp_decode.py - what a collector got, read by OpenTelemetry's own definitions and Prometheus' own parser.

Run by test_otlp.py with the Python of build/clients. Lines of "PATH BASE64" come on standard input; the answer is an
object: "spans", "metrics" and, of a path that is "openmetrics", "families". Exit code 77: a package is not installed.
"""
import base64
import json
import sys

try:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)


def pairs(attributes):
    keys = [pair.key for pair in attributes]
    assert len(keys) == len(set(keys)), keys
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


def whole(message):
    """No field that the definitions do not have."""
    assert not message.FindInitializationErrors()
    read = type(message)()
    read.CopyFrom(message)
    read.DiscardUnknownFields()
    assert read.ByteSize() == message.ByteSize(), message
    return message


def spans(body):
    for of_resource in whole(ExportTraceServiceRequest.FromString(body)).resource_spans:
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield {"resource": pairs(of_resource.resource.attributes), "scope": of_scope.scope.name, "name": span.name,
                       "trace": span.trace_id.hex(), "id": span.span_id.hex(), "parent": span.parent_span_id.hex(),
                       "state": span.trace_state, "kind": span.kind, "begin": span.start_time_unix_nano, "end": span.end_time_unix_nano,
                       "flags": span.flags, "error": span.status.code == 2, "attributes": pairs(span.attributes)}


def point(found):
    exemplars = [{"trace": e.trace_id.hex(), "span": e.span_id.hex(), "value": e.as_double} for e in found.exemplars]
    kept = {"attributes": pairs(found.attributes), "exemplars": exemplars, "begin": found.start_time_unix_nano,
            "time": found.time_unix_nano}
    if hasattr(found, "bucket_counts"):
        assert len(found.bucket_counts) == len(found.explicit_bounds) + 1 and sum(found.bucket_counts) == found.count
        assert list(found.explicit_bounds) == sorted(set(found.explicit_bounds))
        return kept | {"count": found.count, "sum": found.sum}
    return kept | {"value": found.as_double}


def metrics(body):
    for of_resource in whole(ExportMetricsServiceRequest.FromString(body)).resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                yield {"resource": pairs(of_resource.resource.attributes), "name": metric.name, "unit": metric.unit, "kind": kind,
                       "monotonic": getattr(data, "is_monotonic", None), "temporality": getattr(data, "aggregation_temporality", None),
                       "points": [point(found) for found in data.data_points]}


def families(body):
    for family in text_string_to_metric_families(body.decode()):
        yield {"name": family.name, "type": family.type,
               "samples": [[s.name, s.labels, s.value, s.exemplar.labels if s.exemplar else None] for s in family.samples]}


answer = {"spans": [], "metrics": [], "families": []}
for line in sys.stdin:
    path, _, body = line.partition(" ")
    body = base64.b64decode(body)
    reader, kind = {"/v1/traces": (spans, "spans"), "/v1/metrics": (metrics, "metrics"), "openmetrics": (families, "families")}[path]
    answer[kind] += reader(body)
json.dump(answer, sys.stdout)
