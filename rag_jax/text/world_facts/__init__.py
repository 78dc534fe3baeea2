"""HOST. World Facts: an embedded data set of facts on countries, in two editions four years apart.

Facts become passages and questions; made-up facts (`Counterfactuals`) teach a reader to trust its passages.
"""

from rag_jax.text.world_facts.counterfactual import CounterfactualExample as CounterfactualExample
from rag_jax.text.world_facts.counterfactual import Counterfactuals as Counterfactuals
from rag_jax.text.world_facts.english import in_sentence as in_sentence
from rag_jax.text.world_facts.facts import EDITIONS as EDITIONS
from rag_jax.text.world_facts.facts import SPLITS as SPLITS
from rag_jax.text.world_facts.facts import ChangedLeader as ChangedLeader
from rag_jax.text.world_facts.facts import Fact as Fact
from rag_jax.text.world_facts.facts import changed_leaders as changed_leaders
from rag_jax.text.world_facts.facts import countries as countries
from rag_jax.text.world_facts.facts import load_facts as load_facts
from rag_jax.text.world_facts.facts import split_of as split_of
from rag_jax.text.world_facts.passages import FactPassage as FactPassage
from rag_jax.text.world_facts.passages import compose as compose
from rag_jax.text.world_facts.passages import world_passages as world_passages
from rag_jax.text.world_facts.questions import FactQuestion as FactQuestion
from rag_jax.text.world_facts.questions import leader_questions as leader_questions
from rag_jax.text.world_facts.questions import world_questions as world_questions
from rag_jax.text.world_facts.relations import RELATIONS as RELATIONS
from rag_jax.text.world_facts.relations import SECTIONS as SECTIONS
from rag_jax.text.world_facts.relations import Relation as Relation
