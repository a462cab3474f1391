"""What a bake reads of production's metrics page."""

from tokenpeak.node.engine import serving
from tokenpeak.node.probe import observation


def test_histogram_of_a_page() -> None:
    """Its count, its sum and its buckets over all labels; what the page does not have is left out."""
    page = serving.parse_metrics(
        "vllm:time_to_first_token_seconds_count 3\n"
        "vllm:time_to_first_token_seconds_sum 1.5\n"
        'vllm:time_to_first_token_seconds_bucket{le="0.5",engine="0"} 1\n'
        'vllm:time_to_first_token_seconds_bucket{le="0.5",engine="1"} 1\n'
        'vllm:time_to_first_token_seconds_bucket{le="+Inf",engine="0"} 3\n'
    )

    found = {name: value for name, value in observation.columns(page).items() if name.startswith(("ttft", "tpot"))}

    assert {"ttft_count": 3.0, "ttft_sum": 1.5, "ttft_le:0.5": 2.0, "ttft_le:+Inf": 3.0} == found
