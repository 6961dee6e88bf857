"""Traces of a server: spans of its loads, sent to the collector that OpenTelemetry's variables name."""

from __future__ import annotations

import importlib.util
import logging
import os
from typing import Final

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_log: Final = logging.getLogger("seqstore.serve")


def send_traces() -> bool:
    """Sets up this process's tracer provider if one of OpenTelemetry's OTLP endpoints is set.

    Returns:
        Whether spans are sent. Without the packages of the extra `otel` a line of the log says so.
    """
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return False
    if importlib.util.find_spec("opentelemetry") is None or _exporter() is None:
        _log.warning("%s is set, but traces need more packages: pip install 'seqstore[otel]'", _ENDPOINTS[1])
        return False
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({SERVICE_NAME: "seqstore"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True


def _exporter() -> object | None:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:
        return None
