# SPDX-License-Identifier: Apache-2.0
"""The libraries that people embed with, each with its real code: add, query, save, load again.

Must never break: vectors are those of Model, queries and documents have their prompts, a saved store or pipeline opens
again with the same model. Each is skipped where its library is not installed (`make python` has them all)."""
import asyncio
import importlib
import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import DATA, MODEL, PEERS_MAY_WARN

import fletch

TEXTS = ["A cat sits on the mat.", "Stocks fell on Monday.", "A feline rests on a rug.", "The recipe needs two eggs."]
pytestmark = PEERS_MAY_WARN


def need(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


class TestLangChain:
    """langchain-tests' own classes."""

    @pytest.fixture(autouse=True)
    def there(self):
        need("langchain_core")

    def test_documents_queries_and_async(self, model):
        from fletch.langchain import FletchEmbeddings
        embeddings = FletchEmbeddings(MODEL)
        rows = embeddings.embed_documents(TEXTS)
        assert np.array_equal(np.float32(rows), model.embed(TEXTS)) and isinstance(rows[0][0], float)
        assert np.array_equal(np.float32(embeddings.embed_query(TEXTS[0])), model.embed(TEXTS[0]))
        assert asyncio.run(embeddings.aembed_documents(TEXTS)) == rows
        assert asyncio.run(embeddings.aembed_query(TEXTS[0])) == embeddings.embed_query(TEXTS[0])
        assert embeddings.embed_documents([]) == []

    def test_vector_store(self):
        from fletch.langchain import FletchEmbeddings
        from langchain_core.vectorstores import InMemoryVectorStore
        store = InMemoryVectorStore(FletchEmbeddings(fletch.Model(MODEL)))
        store.add_texts(TEXTS)
        found = store.similarity_search("an animal on a carpet", k=2)
        assert {one.page_content for one in found} == {TEXTS[0], TEXTS[2]}


try:
    from langchain_tests.integration_tests import EmbeddingsIntegrationTests
    from langchain_tests.unit_tests import EmbeddingsUnitTests
except ImportError:
    pass
else:
    class _Given:
        @property
        def embeddings_class(self):
            return importlib.import_module("fletch.langchain").FletchEmbeddings

        @property
        def embedding_model_params(self):
            return {"model": MODEL}

    class TestLangChainUnit(_Given, EmbeddingsUnitTests):
        pass

    class TestLangChainIntegration(_Given, EmbeddingsIntegrationTests):
        pass


PIPELINE = """
import sys
from fletch.llama_index import FletchEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import TextNode

if __name__ == "__main__":  # its workers are spawned
    embedding = FletchEmbedding(model_name=sys.argv[1])
    pipeline = IngestionPipeline(transformations=[embedding])
    nodes = pipeline.run(nodes=[TextNode(text=f"text {i % 4}") for i in range(20)], num_workers=2)
    assert len(nodes) == 20
    assert all(node.embedding == embedding.get_text_embedding(node.get_content()) for node in nodes)
"""


def test_llama_index_pipeline(tmp_path):
    need("llama_index.core")
    program = tmp_path / "pipeline.py"
    program.write_text(PIPELINE)
    done = subprocess.run([sys.executable, str(program), MODEL], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_llama_index_store_opens_again(model, tmp_path):
    need("llama_index.core")
    from fletch.llama_index import FletchEmbedding
    from llama_index.core import Document, StorageContext, VectorStoreIndex, load_index_from_storage
    embedding = FletchEmbedding(model_name=MODEL)
    assert np.array_equal(np.float32(embedding.get_text_embedding(TEXTS[0])), model.embed(TEXTS[0]))
    assert asyncio.run(embedding.aget_text_embedding_batch(TEXTS)) == embedding.get_text_embedding_batch(TEXTS)
    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS], embed_model=embedding)
    index.storage_context.persist(tmp_path)
    again = load_index_from_storage(StorageContext.from_defaults(persist_dir=tmp_path), embed_model=embedding)
    for one in (index, again):
        assert one.as_retriever(similarity_top_k=1).retrieve("a cat on a mat")[0].get_content() == TEXTS[0]


def test_haystack_pipeline(model):
    need("haystack")
    from fletch.haystack import FletchDocumentEmbedder, FletchTextEmbedder
    from haystack import Document, Pipeline
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    given = [Document(content=text) for text in TEXTS]
    made = FletchDocumentEmbedder(MODEL).run(given)["documents"]
    assert given[0].embedding is None and np.array_equal(np.float32(made[0].embedding), model.embed(TEXTS[0]))
    store.write_documents(made)
    pipeline = Pipeline()
    pipeline.add_component("embedder", FletchTextEmbedder(MODEL))
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=1))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["fletch.haystack"])
    assert again.get_component("embedder").to_dict() == pipeline.get_component("embedder").to_dict()
    found = pipeline.run({"embedder": {"text": "a cat on a mat"}})["retriever"]["documents"]
    assert found[0].content == TEXTS[0]
    assert asyncio.run(FletchTextEmbedder(MODEL).run_async("x"))["embedding"] == FletchTextEmbedder(MODEL).run("x")["embedding"]
    assert asyncio.run(FletchDocumentEmbedder(MODEL).run_async(given))["documents"][1].embedding == made[1].embedding
    for component, wrong in ((FletchTextEmbedder, given), (FletchDocumentEmbedder, "x")):
        with pytest.raises(TypeError):
            component(MODEL).run(wrong)


def test_chroma_collection_opens_again(tmp_path, model):
    chromadb = need("chromadb")
    from fletch.chroma import FletchEmbeddingFunction
    client = chromadb.PersistentClient(str(tmp_path), settings=chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("texts", embedding_function=FletchEmbeddingFunction(MODEL, dimensions=128))
    collection.add(ids=list("abcd"), documents=TEXTS)
    assert collection.query(query_texts=["a cat on a mat"], n_results=1)["ids"] == [["a"]]
    stored = collection.get(ids=["b"], include=["embeddings"])["embeddings"][0]
    assert np.allclose(stored, model.embed(TEXTS[1], dimensions=128), atol=1e-6)
    again = chromadb.PersistentClient(str(tmp_path), settings=chromadb.Settings(anonymized_telemetry=False)).get_collection("texts")
    assert again.query(query_texts=["breakfast"], n_results=1)["ids"] == [["d"]]
    function = FletchEmbeddingFunction.build_from_config(FletchEmbeddingFunction(MODEL).get_config())
    assert function.name() == "fletch" and not function.is_legacy()
    with pytest.raises(ValueError, match="another model"):
        function.validate_config_update(function.get_config(), function.get_config() | {"dimensions": 5})


def test_lancedb_table_opens_again(tmp_path, model):
    lancedb = need("lancedb")
    import fletch.lancedb  # noqa: F401
    from lancedb.embeddings import get_registry
    from lancedb.pydantic import LanceModel, Vector
    function = get_registry().get("fletch").create(name=MODEL)

    class Row(LanceModel):
        text: str = function.SourceField()
        vector: Vector(function.ndims()) = function.VectorField()
    table = lancedb.connect(tmp_path).create_table("t", schema=Row)
    table.add([{"text": text} for text in TEXTS])
    for one in (table, lancedb.connect(tmp_path).open_table("t")):
        assert one.search("a cat on a mat").limit(1).to_list()[0]["text"] == TEXTS[0]
    assert np.array_equal(np.float32(table.to_arrow()["vector"][0].as_py()), model.embed(TEXTS[0]))


@pytest.fixture
def both_encoders():
    """Ours and the original, on the same folder."""
    original = need("sentence_transformers")
    return fletch.SentenceTransformer(MODEL), original.SentenceTransformer(MODEL, device="cpu")


def test_keybert_takes_the_model_that_it_is_given(both_encoders):
    """It looks for "sentence_transformers" in the type's name, and loads another model where that is missing."""
    need("keybert")
    from keybert import KeyBERT
    text = "Stocks fell on Monday as investors sold shares of banks. The central bank left interest rates unchanged."
    ours, theirs = (KeyBERT(model) for model in both_encoders)
    assert ours.model.embedding_model is both_encoders[0]
    found, wanted = (keybert.extract_keywords(text, keyphrase_ngram_range=(1, 2)) for keybert in (ours, theirs))
    assert len(found) == 5 and [word for word, _ in found] == [word for word, _ in wanted]
    assert max(abs(a[1] - b[1]) for a, b in zip(found, wanted)) <= 1e-4  # it gives four digits


def test_bertopic_takes_the_model_that_it_is_given(both_encoders):
    need("bertopic")
    from bertopic import BERTopic
    from bertopic.dimensionality import BaseDimensionalityReduction
    from sklearn.cluster import KMeans
    texts = [f"{animal} {doing}." for animal in ("A cat", "A dog", "A mouse") for doing in ("sleeps", "eats", "runs")] + \
        [f"{paper} {doing} on Monday." for paper in ("Shares", "Bonds", "Stocks") for doing in ("fell", "rose", "slumped")]
    topics = []
    for model in both_encoders:
        made = BERTopic(embedding_model=model, umap_model=BaseDimensionalityReduction(), min_topic_size=2,
                        hdbscan_model=KMeans(n_clusters=2, n_init=4, random_state=1))
        topics.append(made.fit_transform(texts)[0])
        assert made.embedding_model.embedding_model is model
    assert topics[0] == topics[1] and len(set(topics[0][:9])) == 1 and topics[0][0] != topics[0][9]


def test_what_asks_for_the_original_s_class_takes_ours(both_encoders):
    import copy
    import pickle
    ours, theirs = both_encoders
    assert isinstance(ours, type(theirs)) and isinstance(ours, fletch.SentenceTransformer)
    assert type(ours) is fletch.SentenceTransformer and not isinstance(fletch.Model(MODEL), type(theirs))
    for made in (pickle.loads(pickle.dumps(ours)), copy.copy(ours)):
        assert type(made) is type(ours) and np.array_equal(made.encode(TEXTS), ours.encode(TEXTS))


def evaluators():
    """An evaluator of each kind that takes a SentenceTransformer, by its name."""
    from sentence_transformers import evaluation as kinds
    others = [text.replace(".", ", they say.") for text in TEXTS]
    queries, corpus = {str(i): text for i, text in enumerate(others)}, {str(i): text for i, text in enumerate(TEXTS)}
    samples = [{"query": others[i], "positive": [TEXTS[i]], "negative": [TEXTS[i - 1]]} for i in range(4)]
    made = [kinds.EmbeddingSimilarityEvaluator(TEXTS, TEXTS[::-1], [0.1, 0.2, 0.3, 0.4]),
            kinds.EmbeddingSimilarityEvaluator(TEXTS, others, [0.4, 0.2, 0.3, 0.1], precision="binary", name="binary"),
            kinds.BinaryClassificationEvaluator(TEXTS, others[:2] + others[1:3], [1, 1, 0, 0]),
            kinds.TripletEvaluator(TEXTS, others, TEXTS[::-1]), kinds.RerankingEvaluator(samples),
            kinds.InformationRetrievalEvaluator(queries, corpus, {i: {i} for i in queries}, accuracy_at_k=[1], map_at_k=[4]),
            kinds.ParaphraseMiningEvaluator(corpus, [("0", "2")]), kinds.TranslationEvaluator(TEXTS, others)]
    return [*made, kinds.SequentialEvaluator([made[0], made[3]])]


def test_evaluators_give_the_original_s_figures(both_encoders):
    for evaluator in evaluators():
        found, wanted = (model.evaluate(evaluator) for model in both_encoders)
        assert found.keys() == wanted.keys()
        assert all(abs(found[key] - wanted[key]) <= 1e-5 for key in wanted), (evaluator, found, wanted)
        ours, theirs = (model.model_card_data.eval_results_dict.get(evaluator) for model in both_encoders)
        assert ours == found if theirs else ours is None


def mteb_tasks():
    """MTEB's own task code over text sets that lie on this machine."""
    mteb = need("mteb")
    from datasets import Dataset
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.abstasks.sts import AbsTaskSTS

    def about(name, kind, score, language):
        return mteb.TaskMetadata(name=name, description=name, reference=None, type=kind, category="t2t", modalities=["text"],
                                 eval_splits=["test"], eval_langs=[language], main_score=score,
                                 dataset={"path": "local/" + name, "revision": "1"}, date=None, domains=None,
                                 task_subtypes=None, license=None, annotations_creators=None, dialect=None,
                                 sample_creation=None, bibtex_citation=None)

    def lines(name):
        return [json.loads(line) for line in (DATA / name).read_text().splitlines()]

    def similarity(tag, language):
        class Similarity(AbsTaskSTS):
            metadata = about("Stsb" + tag.capitalize(), "STS", "cosine_spearman", language)
            min_score, max_score = 0, 5

            def load_data(self, *args, **kwargs):
                rows = lines(f"stsb-{tag}-dev.jsonl")
                self.dataset = {"test": Dataset.from_dict({"sentence1": [row["a"] for row in rows],
                                                           "sentence2": [row["b"] for row in rows],
                                                           "score": [row["score"] for row in rows]})}
                self.data_loaded = True
        return Similarity()

    class Cranfield(AbsTaskRetrieval):
        metadata = about("Cranfield", "Retrieval", "ndcg_at_10", "eng-Latn")

        def load_data(self, *args, **kwargs):
            relevant = {}
            for line in (DATA / "cranfield-qrels.tsv").read_text().splitlines():
                query, document, score = line.split("\t")
                relevant.setdefault(query, {})[document] = max(0, int(score))
            queries = [row for row in lines("cranfield-queries.jsonl") if row["id"] in relevant]
            self.dataset = {"default": {"test": {
                "corpus": Dataset.from_list([{"id": row["id"], "title": "", "text": row["text"]} for row in lines("cranfield-docs.jsonl")]),
                "queries": Dataset.from_list([{"id": row["id"], "text": row["text"]} for row in queries]),
                "relevant_docs": relevant, "top_ranked": None}}}
            self.data_loaded = True
    return [similarity("en", "eng-Latn"), similarity("de", "deu-Latn"), similarity("ja", "jpn-Jpan"), Cranfield()]


def test_mteb_scores_are_those_of_the_original(tmp_path):
    mteb, original = need("mteb"), need("sentence_transformers")
    if not DATA.is_dir():
        pytest.skip(f"no text sets at {DATA}")
    from fletch.mteb import FletchEncoder
    scores = []
    for model in (FletchEncoder(MODEL), fletch.SentenceTransformer(MODEL), original.SentenceTransformer(MODEL, device="cpu")):
        result = mteb.evaluate(model, mteb_tasks(), cache=None, overwrite_strategy="always", show_progress_bar=False)
        scores.append({task.task_name: task.get_score() for task in result.task_results})
    assert len(scores[0]) == 4 and set(scores[0]) == set(scores[1]) == set(scores[2])
    for task, score in scores[2].items():
        assert max(abs(score - ours[task]) for ours in scores[:2]) <= 1e-4, (task, scores)
    from mteb.models import SentenceTransformerEncoderWrapper
    meta = SentenceTransformerEncoderWrapper(fletch.SentenceTransformer(MODEL)).mteb_model_meta
    assert meta.name == "fletch/all-MiniLM-L6-v2" and meta.revision == fletch.Model(MODEL).fingerprint[:40]
