"""Calibrations of a sweep's load client, as the methodology page shows them."""

from collections.abc import Mapping
from typing import Any

from tokenpeak.loadgen.calibration import Calibration
from tokenpeak.report.blocks import number

HEADS = (
    "Streams",
    "tok/s",
    "Sustained",
    "TTFT error p50, ms",
    "p99",
    "ITL error p50, ms",
    "p99",
    "CPU per token, µs",
    "Server late p99, ms",
)


def calibrations(record: Mapping[str, object] | None) -> list[dict[str, Any]]:
    """One entry for each network path that was calibrated; none when nothing was attached."""
    raw: Any = (record or {}).get("calibrations", ())
    return [_shown(Calibration.model_validate(entry)) for entry in raw]


def _shown(found: Calibration) -> dict[str, Any]:
    return {
        "name": str(found.way),
        "words": f"{found.way}: up to {found.highest_streams:,} streams and {found.highest_tokens_per_s:,.0f} tok/s "
        "are measured with TTFT's p99 error under 10 ms and ITL's under 5 ms",
        "made": f"on {found.host or 'a machine'} with {found.cpu_cores} cores, "
        f"{found.measured_at:%Y-%m-%d %H:%M} UTC; the round trip of {number(found.round_trip_s * 1e3)} ms and the "
        "server's own lateness are in the errors",
        "heads": HEADS,
        "rows": [
            (
                f"{point.streams:,}",
                f"{point.tokens_per_s:,.0f}",
                f"{point.sustained_share:.1%}",
                *(
                    number(value * 1e3)
                    for value in (
                        point.ttft_error_p50_s,
                        point.ttft_error_p99_s,
                        point.itl_error_p50_s,
                        point.itl_error_p99_s,
                    )
                ),
                "–" if point.cpu_per_token_s is None else number(point.cpu_per_token_s * 1e6),
                number(point.server_lateness_p99_s * 1e3),
            )
            for point in found.points
        ],
    }
