"""How far a judge's word goes: agreement with gold labels, when it should abstain, several judges as one."""
