# SPDX-License-Identifier: Apache-2.0
"""client_programs.py NAME URL - one real client, used as its own documentation does; prints what it got as JSON.

Run by test_clients.py with the Python of build/clients. Texts come as a JSON list on standard input; the answer is an
object: "rows" (vectors of the texts), and what else the client can tell. Exit code 77: the client is not installed.
"""
import asyncio
import json
import sys


def openai(url, texts):
    import openai as package
    client = package.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    quiet = client.embeddings.create(model="m", input=texts)  # the client asks for base64 by itself
    plain = client.embeddings.create(model="m", input=texts[0], encoding_format="float", dimensions=64, user="u")
    try:
        client.embeddings.create(model="m", input="")
        refused = None
    except package.BadRequestError as found:
        refused = [found.status_code, found.body["message"], found.type]

    async def together():
        own = package.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        return await asyncio.gather(*(own.embeddings.create(model="m", input=text) for text in texts * 5))

    many = [reply.data[0].embedding for reply in asyncio.run(together())]
    return {"rows": [item.embedding for item in quiet.data], "cut": plain.data[0].embedding, "refused": refused,
            "tokens": quiet.usage.prompt_tokens, "models": [m.id for m in client.models.list()], "many": many}


def openai_outputs(url, texts):
    import openai as package
    client = package.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    quiet, plain = (client.embeddings.create(model="m", input=texts, extra_body={"outputs": ["tokens", "dense", "dense:64"]}, **form)
                    for form in ({}, {"encoding_format": "float"}))
    return {"rows": [item.embedding for item in quiet.data], "cut": [item.outputs["dense:64"] for item in plain.data],
            "packed": [item.outputs["dense:64"] for item in quiet.data], "counts": [len(item.outputs["tokens"]) for item in plain.data]}
def openai_batches(url, texts):
    import time

    import openai as package
    client = package.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    def begin(lines, **more):
        file = client.files.create(file=("requests.jsonl", "\n".join(lines).encode()), purpose="batch",
                                   expires_after={"anchor": "created_at", "seconds": 3600})
        return client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h", **more)

    def wait(batch):
        while batch.status not in ("completed", "failed", "expired", "cancelled"):
            time.sleep(0.02)
            batch = client.batches.retrieve(batch.id)
        return batch

    lines = [json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/embeddings", "body": {"model": "m", "input": text}})
             for i, text in enumerate([*texts, ""])]
    done = wait(begin(lines, metadata={"for": "a test"}, output_expires_after={"anchor": "created_at", "seconds": 7200}))
    rows, errors = ([json.loads(line) for line in client.files.content(file).text.splitlines()]
                    for file in (done.output_file_id, done.error_file_id))
    failed = wait(begin(["{"]))
    stopped = begin(lines)
    try:
        stopped = wait(client.batches.cancel(stopped.id))
    except package.ConflictError:  # it was done before
        stopped = wait(stopped)
    kept = client.files.retrieve(done.input_file_id)
    mine = [file.id for file in client.files.list(limit=1, order="asc")]  # it asks for page after page
    gone = client.files.delete(done.input_file_id).deleted
    try:
        client.files.retrieve(done.input_file_id)
        refused = None
    except package.NotFoundError as found:
        refused = found.status_code
    return {"rows": [row["response"]["body"]["data"][0]["embedding"] for row in rows], "ids": [row["custom_id"] for row in rows + errors],
            "status": [done.status, failed.status, stopped.status], "counts": done.request_counts.model_dump(), "metadata": done.metadata,
            "code": failed.errors.data[0].code, "line": failed.errors.data[0].line, "error": errors[0]["response"]["status_code"],
            "batches": [batch.id for batch in client.batches.list(limit=1)] == [stopped.id, failed.id, done.id],
            "files": len(mine) == len(set(mine)) and done.output_file_id in mine, "gone": [gone, refused],
            "lives": [kept.expires_at - kept.created_at, client.files.retrieve(done.output_file_id).expires_at - done.completed_at]}


def openai_late(url, texts):
    import openai as package
    client = package.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    found = client.embeddings.create(model="m", input=texts, extra_body={"late_chunking": True})
    return {"rows": [item.embedding for item in found.data], "tokens": found.usage.prompt_tokens}


def voyageai(url, texts):
    import voyageai as package
    client = package.Client(api_key="none", base_url=f"{url}/v1")
    found = client.contextualized_embed(inputs=[texts, texts[:1]], model="m", input_type="document")
    small = client.contextualized_embed(inputs=[texts], model="m", output_dtype="int8", output_dimension=8)
    try:
        client.contextualized_embed(inputs=[texts], model="m", output_dimension=10**6)
        refused = None
    except package.error.InvalidRequestError as error:
        refused = [error.http_status, str(error)]
    return {"rows": [result.embeddings for result in found.results], "tokens": found.total_tokens,
            "small": small.results[0].embeddings, "refused": refused}


def huggingface_hub(url, texts):
    from huggingface_hub import InferenceClient
    client = InferenceClient(model=url, timeout=60)
    rows = [client.feature_extraction(text)[0].tolist() for text in texts]
    raw = client.feature_extraction(texts[0], normalize=False, truncate=True, truncation_direction="right")
    return {"rows": rows, "raw": raw[0].tolist()}


def huggingface_classification(url, texts):
    """Of one text the server answers as TEI does, a flat list, of which this client hands over the first: the best label."""
    from huggingface_hub import InferenceClient
    client = InferenceClient(model=f"{url}/predict", timeout=60)
    return {"best": [[found.label, found.score] for found in map(client.text_classification, texts)]}


def huggingface_zero_shot(url, texts):
    from huggingface_hub import InferenceClient
    client = InferenceClient(model=f"{url}/zero-shot-classification", timeout=60)
    found = client.zero_shot_classification(texts[0], ["cat", "dog"], hypothesis_template="It is {} at sea")
    return {"found": {element.label: element.score for element in found}}


def huggingface_similarity(url, texts):
    from huggingface_hub import InferenceClient
    return {"cosine": InferenceClient(model=f"{url}/similarity", timeout=60).sentence_similarity(texts[0], texts[1:])}


def langchain_openai(url, texts):
    from langchain_openai import OpenAIEmbeddings
    client = OpenAIEmbeddings(model="m", base_url=f"{url}/v1", api_key="none", check_embedding_ctx_length=False)
    return {"rows": client.embed_documents(texts), "query": client.embed_query(texts[0])}


def llama_index(url, texts):
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
    client = TextEmbeddingsInference(model_name="m", base_url=url, embed_batch_size=100)
    return {"rows": client.get_text_embedding_batch(texts)}


def ollama(url, texts):
    import ollama as package
    client = package.Client(host=url)
    reply = client.embed(model="all-minilm", input=texts)
    old = client.embeddings(model="all-minilm", prompt=texts[0])
    try:
        client.embed(model="all-minilm", input="word " * 400, truncate=False)
        refused = None
    except package.ResponseError as found:
        refused = [found.status_code, found.error]
    return {"rows": reply["embeddings"], "tokens": reply["prompt_eval_count"], "raw": old["embedding"],
            "models": [m.model for m in client.list().models], "refused": refused}


def ollama_models(url, texts):
    """texts[0] is a model of the hub, texts[1] none."""
    import ollama as package
    client = package.Client(host=url)
    steps = [step.model_dump(exclude_none=True) for step in client.pull(texts[0], stream=True)]
    refused = []
    for call in (client.pull, client.delete, lambda name: list(client.pull(name, stream=True))):
        try:
            call(texts[1])
        except package.ResponseError as found:
            refused.append([found.status_code, found.error])
    rows = client.embed(model="base", input=texts).embeddings
    return {"steps": steps, "again": client.pull(texts[0]).status, "refused": refused, "rows": len(rows),
            "listed": [m.model for m in client.list().models], "running": [m.model for m in client.ps().models],
            "deleted": client.delete(texts[0]).status}


def cohere(url, texts):
    import cohere as package
    client = package.ClientV2(api_key="none", base_url=url)
    reply = client.embed(model="embed-v4.0", texts=texts, input_type="search_document",
                         embedding_types=["float", "int8", "ubinary", "base64"])
    try:
        client.rerank(model="rerank-v3.5", query="q", documents=texts)
        refused = None
    except package.core.api_error.ApiError as found:
        refused = [found.status_code, found.body["message"]]
    return {"rows": reply.embeddings.float_, "int8": reply.embeddings.int8, "ubinary": reply.embeddings.ubinary,
            "base64": reply.embeddings.base64, "texts": reply.texts, "refused": refused}


# What follows is for a reranker or classifier: texts[0] is the query, the rest are documents.

def cohere_rerank(url, texts):
    import cohere as package
    reply = package.ClientV2(api_key="none", base_url=url).rerank(model="m", query=texts[0], documents=texts[1:], top_n=2)
    old = package.Client(api_key="none", base_url=url).rerank(model="m", query=texts[0], documents=texts[1:], return_documents=True)
    return {"ranked": [[row.index, row.relevance_score] for row in reply.results],
            "old": [[row.index, row.relevance_score, row.document.text] for row in old.results]}


def langchain_jina(url, texts):
    from langchain_community.document_compressors import JinaRerank
    client = JinaRerank(model="m", jina_api_key="none", top_n=2)
    # It has no field for the address: its session is made to go elsewhere, as a proxy of a company does.
    client.session.get_adapter("https://api.jina.ai").send = _redirected(client.session, url)
    return {"ranked": [[row["index"], row["relevance_score"]] for row in client.rerank(texts[1:], texts[0])]}


def _redirected(session, url):
    from requests.adapters import HTTPAdapter

    def send(request, **rest):
        request.url = request.url.replace("https://api.jina.ai", url)
        return HTTPAdapter().send(request, **rest)
    return send


def llama_index_jina(url, texts):
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.jinaai_rerank import JinaRerank
    client = JinaRerank(base_url=f"{url}/v1", api_key="none", model="m", top_n=2)
    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(i))) for i, text in enumerate(texts[1:])]
    return {"ranked": [[int(found.node.node_id), found.score] for found in client.postprocess_nodes(nodes, query_str=texts[0])]}


def llama_index_tei(url, texts):
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
    client = TextEmbeddingInference(base_url=url, model_name="m", top_n=2)
    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(i))) for i, text in enumerate(texts[1:])]
    return {"ranked": [[int(found.node.node_id), found.score] for found in client.postprocess_nodes(nodes, query_str=texts[0])]}


def openai_score(url, texts):
    """vLLM's documentation posts its own routes through the client."""
    import openai as package
    client = package.OpenAI(base_url=url, api_key="none", max_retries=0)
    body = {"model": "m", "text_1": texts[0], "text_2": texts[1:]}
    reply = client.post("/score", body=body, cast_to=object)
    return {"scores": [row["score"] for row in reply["data"]], "tokens": reply["usage"]["prompt_tokens"]}


if __name__ == "__main__":
    try:
        answer = globals()[sys.argv[1]](sys.argv[2], json.load(sys.stdin))
    except ImportError as missing:
        print(missing, file=sys.stderr)
        sys.exit(77)
    json.dump(answer, sys.stdout)
