"""Patterns of sensitive text: what each kind is, and what looks like it and stays."""

import pytest

from tokenpeak.sensitive import holds_secret, is_secret_setting, mask


def masked(text: str) -> str:
    """The text with a word of its kind for each thing found."""
    return mask(text, lambda kind, _: f"<{kind}-1>")


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("refused 10.1.2.3:8099", "refused <address-1>:8099"),
        ("at [2001:db8::1]:8099 and fe80::1%eth0", "at [<address-1>]:8099 and <address-1>"),
        ("::ffff:10.1.2.3 2001:db8:0:0:0:0:0:1/64", "<address-1> <address-1>/64"),
        ("ip-10-1-2-3 answers", "<address-1> answers"),
        ("GPU-1234abcd-12ab-12ab-12ab-1234567890ab", "<uuid-1>"),
        ("over aa:bb:cc:dd:ee:ff", "over <mac-1>"),
        ("--model=/srv/a/b --x", "--model=<path-1> --x"),
        ("PATH=/opt/a:/srv/x, ~ada/y", "PATH=<path-1>:<path-1>, <path-1>"),
        (
            'File "/opt/v/lib/python3.11/site-packages/vllm/e.py"',
            'File "<path-1>/lib/python3.11/site-packages/vllm/e.py"',
        ),
        ("jane.doe@example.com or root@gpu1", "<login-1> or <login-1>"),
        ("http://serving.lab:8000/health", "http://<host-1>:8000/health"),
        ("https://a.corp/b/c, then", "https://<host-1>/<path-1>, then"),
        ("postgresql://u:p@db/x", "postgresql://<secret-1>@<host-1>/<path-1>"),
        ("via bob:hunter2@proxy:3128", "via <secret-1>:3128"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer <secret-1>"),
        ("--api-key swordfish --seed 1", "--api-key <secret-1> --seed 1"),
        ("'api_key': ['swordfish']", "'api_key': ['<secret-1>']"),
        ("HF_TOKEN=abcd1234efgh", "HF_TOKEN=<secret-1>"),
        ("my-api-key hunter2 and --api-key hunter2.", "my-api-key <secret-1> and --api-key <secret-1>"),
        ("the API key: hunter2, the password is 'hunter2'", "the API key: <secret-1>, the password is '<secret-1>'"),
        ("access token hunter2, API_KEY hunter2", "access token <secret-1>, API_KEY <secret-1>"),
        ("--api-key 'hunter two' --seed 1", "--api-key '<secret-1>' --seed 1"),
        ("['--api-key', 'hunter2k', '--seed', '1']", "['--api-key', '<secret-1>', '--seed', '1']"),
        ('["--api-key", "x", "--hf-token","two words"]', '["--api-key", "<secret-1>", "--hf-token","<secret-1>"]'),
        (r'"[\"--api-key\", \"x\"]"', r'"[\"--api-key\", \"<secret-1>\"]"'),
        ("hf_abcdefghijklmnopqrstuv sk-proj-abcdefghijkl", "<secret-1> <secret-1>"),
        ("ghp_abcdefghijklmnopqrst AKIAABCDEFGHIJKLMNOP", "<secret-1> <secret-1>"),
        ("eyJhbGciOi.eyJzdWIi.abc", "<secret-1>"),
        ("on gpu-07.corp.internal, user=jane", "on <host-1>, user=<user-1>"),
    ],
)
def test_what_gives_somebody_away_is_replaced(text: str, cleaned: str) -> None:
    """Each kind is replaced, the text around it stays, and a cleaned text has nothing more to clean."""
    assert cleaned == masked(text)
    assert cleaned == masked(cleaned)


@pytest.mark.parametrize(
    "text",
    [
        "at 12:34:56, 2026-11-20T22:00:00.123Z",
        "vLLM 0.32.0, CUDA 12.8, driver 580.65.06, nvidia-cublas-cu12==12.8.4.1, version 12.8.4.1",
        "127.0.0.1 0.0.0.0 ::1 [::]:8000 http://127.0.0.1:8000/v1/completions",
        "c10::Error at::native std::runtime_error 0000:65:00.0",
        "1,234 tok/s and/or N/A, a / b, 1/2 </script>",
        '"POST /v1/completions HTTP/1.1" 200, GET /health',
        "max_tokens: 128, kv_cache_tokens=412000, hf_token: None, pad_token: '<|pad|>', first token: 12.5 ms",
        "meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 --dtype bfloat16 NVIDIA A100-SXM4-80GB",
        "vllm/vllm-openai@sha256:0123456789abcdef",
        "see https://docs.vllm.ai/en/latest/cli and https://huggingface.co/meta-llama/Llama-3.1-8B",
        "inter-token latency 18.59ms, output-token throughput, max-tokens 100, --max-token 100, per-token 3ms",
        "['--max-tokens', '100', '--enable-auth', '--seed']; the api-key option, no password given, a secret of ours",
        "hf_overrides sk-learn risk-free tokenizer_mode=auto",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    """Times, versions, loopback, scopes, ratios, the engine's routes and names of models are nobody's."""
    assert text == masked(text)


def test_only_secrets_go_when_names_may_stay() -> None:
    """A copy under the nodes' own names keeps addresses and paths, and no secret."""
    text = mask(
        "10.1.2.3 /srv/a http://u:p@h/x hf_abcdefghijklmnopqrstuv", lambda kind, _: f"<{kind}>", secrets_only=True
    )

    assert "10.1.2.3 /srv/a http://<secret>@h/x <secret>" == text


def test_settings_are_secret_by_name_and_value() -> None:
    """A number under a secret's name is none, nor are tokens that are counted."""
    assert is_secret_setting("HF_TOKEN", "abc")
    assert is_secret_setting("api-key", "abc")
    assert not is_secret_setting("VLLM_TOKEN_LIMIT", "2048")
    assert not is_secret_setting("TOKENIZERS_PARALLELISM", "maybe")
    assert holds_secret("Bearer abc.def-123")
    assert not holds_secret("Bearer of news")
